"""The child's side: run one pass of one cell, turn whatever happens into a record, and be gone."""

import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from runners import where
from runners.isolate import isolate, lift_memory_limit, redirect
from runners.job import Job
from suite.errors import Unsupported, UsageError
from suite.record import InvalidRecord, Record, validate

# How allocators say that there is no memory, where the type of the exception does not.
_HOST_OOM = re.compile(r"can't allocate memory|not enough memory|Cannot allocate memory|bad_alloc", re.I)
_DEVICE_OOM = re.compile(r"error: out of memory|STATUS_ALLOC_FAILED|OUT_OF_(DEVICE|HOST)_MEMORY", re.I)
_BYTES_ASKED = re.compile(r"allocate (\d[\d.,]*) ?(bytes|[KMGT]iB)", re.I)


def run(job: Job) -> None:
    """Entry of a measuring child: isolate, measure, write the record, exit. Never returns."""
    isolate(
        job.store.log_path(job.key),
        job.environment,
        job.host_memory_bytes,
        job.cell.config.threads,
    )
    job.store.write(_outcome(job))
    # Nothing left here is worth tearing down, and tearing down is where processes hang.
    _leave(0)


def work(jobs: Connection, threads: int) -> None:
    """Entry of a child that predicts cell after cell: a byte for each job whose record is written."""
    isolate(Path(os.devnull), {}, None, threads)
    while True:
        try:
            job: Job = jobs.recv()
        except EOFError:
            _leave(0)
        redirect(job.store.log_path(job.key))
        job.store.write(_outcome(job))
        jobs.send_bytes(b".")


def answer(function: str, arguments: tuple[Any, ...], threads: int, log: Path, reply: Connection) -> None:
    """Entry of a child that is asked one question: sends ``function(*arguments)`` back as JSON."""
    isolate(log, {}, None, threads)
    try:
        message = {"value": resolve(function)(*arguments)}
    except UsageError as problem:
        message = {"usage": [problem.key, str(problem.value), problem.allowed]}
    except Exception as problem:  # noqa: BLE001 - the parent raises it again
        traceback.print_exc()
        message = {"error": f"{type(problem).__name__}: {problem}"}
    reply.send_bytes(json.dumps(message).encode())
    _leave(0)


def resolve(dotted: str) -> Callable[..., Any]:
    """The function named ``module:function``."""
    module, _, name = dotted.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def _outcome(job: Job) -> Record:
    try:
        measured = resolve(job.measure)(job.cell, job.pass_, job.round, job.session)
        record = job.record(
            measured.status,
            figures=measured.figures,
            detail=measured.detail,
            warnings=measured.warnings,
            error=measured.error,
        )
        _refuse_unstorable(record)
    except BaseException as problem:  # noqa: BLE001 - SystemExit and KeyboardInterrupt are outcomes too
        lift_memory_limit()  # saying what happened takes memory too
        traceback.print_exc()
        status, error = _classify(problem)
        return job.record(status, error=error)
    return record


def _refuse_unstorable(record: Record) -> None:
    validate(record)
    try:
        record.to_json()
    except (ValueError, TypeError) as problem:
        raise InvalidRecord(f"{record.key}: {problem}") from problem


def _classify(problem: BaseException) -> tuple[str, dict[str, str]]:
    text = str(problem)
    error = {
        "type": type(problem).__name__,
        "message": text or type(problem).__name__,
        "where": where.of_traceback(problem.__traceback__),
    }
    if isinstance(problem, Unsupported):
        return "unsupported", error
    place = _out_of_memory(problem, text)
    if place is None:
        return "crash", error
    asked = _BYTES_ASKED.search(text)
    amount = f" asking for {asked[1]} {asked[2]}" if asked else ""
    first_line = text.strip().partition("\n")[0]
    error["message"] = f"out of {place} memory{amount}" + (f": {first_line}" if first_line else "")
    return "oom", error


def _out_of_memory(problem: BaseException, text: str) -> str | None:
    """``device`` or ``host`` if ``problem`` says that memory ran out there, else None."""
    import torch

    if isinstance(problem, torch.OutOfMemoryError):
        return "device"
    if isinstance(problem, MemoryError):
        return "host"
    if isinstance(problem, RuntimeError | OSError):
        if _HOST_OOM.search(text):
            return "host"
        if _DEVICE_OOM.search(text):
            return "device"
    return None


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

"""A sweep's own description, and the rule that its records must have been made in one way."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runners.job import protocol, timestamp
from suite.cell import Cell
from suite.config.schema import SessionConfig
from suite.errors import UsageError
from suite.measure.fingerprint import stable
from suite.store import RecordStore

SCHEMA = 1


@contextlib.contextmanager
def sole_parent(root: Path, name: str) -> Iterator[None]:
    """Hold ``root/.lock`` for as long as this process runs the sweep; the kernel frees it at any death.

    Raises UsageError if the folder cannot be written or another process runs the sweep.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        handle = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        raise UsageError("paths.runs", root, f"must be a folder one can write to: {problem}") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
            allowed = f"process {pid} is running this sweep in {root}; wait for it or take another name"
            raise UsageError("sweep.name", name, allowed) from None
        os.truncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        # Half-written files of an earlier process that was killed; nobody else writes here now.
        for leftover in (*root.glob(".*.tmp"), *root.glob("records/.*.tmp")):
            leftover.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


def describe(
    cells: Sequence[Cell],
    session: SessionConfig,
    *,
    code: Mapping[str, Any],
    fingerprint: Mapping[str, Any],
    command: str,
    host_memory_bytes: int | None,
) -> dict[str, Any]:
    """The manifest of a session that starts now."""
    threads = sorted({cell.config.threads for cell in cells})
    now = timestamp()
    return {
        "schema": SCHEMA,
        "name": session.name,
        "cells": [_entry(cell, session) for cell in cells],
        "protocol": protocol(session, threads[0] if len(threads) == 1 else threads, host_memory_bytes),
        "code": dict(code),
        "fingerprint": dict(fingerprint),
        "budget_bytes": session.budget_bytes,
        "reference": session.reference,
        "passes": list(session.passes),
        "rounds": session.rounds,
        "command": command,
        "created_at": now,
        "updated_at": now,
        # Records older than this are measured again: the moment a retry=[all] began.
        "redo_before": now if "all" in session.retry else "",
        "state": "running",
    }


def _entry(cell: Cell, session: SessionConfig) -> dict[str, Any]:
    entry = {"id": cell.id, "workload": cell.workload_id, "config": cell.resolved}
    own = session.cell_passes.get(cell.id)
    return entry if own is None else {**entry, "passes": list(own)}


def reconcile(store: RecordStore, manifest: dict[str, Any], session: SessionConfig) -> dict[str, Any]:
    """``manifest`` as the continuation of what the store already holds. Writes nothing.

    Cells, rounds, passes and budget may differ from last time: cells that are no longer asked for
    stay listed after those that are. Raises UsageError if the records were made by another protocol,
    code or machine, unless they are adopted or all measured again.
    """
    before = store.read_manifest()
    if before is None:
        return manifest
    changes = differences(before, manifest)
    if changes and not session.adopt and "all" not in session.retry:
        raise UsageError(
            "sweep.name",
            session.name,
            f"its records in {store.root} were made otherwise: {'; '.join(changes)}. "
            "adopt=true keeps them, retry=[all] measures them again, sweep.name=… starts another sweep",
        )
    asked = {cell["id"] for cell in manifest["cells"]}
    kept = [cell for cell in before.get("cells", []) if cell["id"] not in asked]
    return {
        **manifest,
        "cells": manifest["cells"] + kept,
        "created_at": before.get("created_at", manifest["created_at"]),
        "redo_before": manifest["redo_before"] or before.get("redo_before", ""),
    }


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """``what: old → new`` for each thing that makes records of the two not comparable."""
    old, new = _comparable(before), _comparable(now)
    return [
        f"{name}: {_show(old.get(name))} → {_show(new.get(name))}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def _comparable(manifest: Mapping[str, Any]) -> dict[str, Any]:
    how, code = manifest.get("protocol", {}), manifest.get("code", {})
    trainer = {f"trainer.{name}": value for name, value in how.get("trainer", {}).items()}
    machine = stable(manifest.get("fingerprint", {}))
    return json.loads(  # type: ignore[no-any-return]
        json.dumps(
            {
                **trainer,
                "threads": how.get("threads"),
                "assumptions": how.get("assumptions") or None,
                "openmp_waiting": how.get("openmp_waiting"),
                "code.source_digest": code.get("source_digest"),
                **{f"fingerprint.{name}": value for name, value in machine.items()},
            }
        )
    )


def _show(value: Any) -> str:
    text = str(value)
    return text[:12] if len(text) == 64 and text.isalnum() else text

"""A server that has torch, Lightning and the suite loaded, and forks a fresh process in milliseconds.

It wraps :mod:`multiprocessing`'s forkserver, of which a process has exactly one: the first
:class:`ForkServer` to start decides what is preloaded.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import suite
from runners import child
from runners.job import Job
from runners.threads import cores, server_environment
from suite.errors import UsageError

# Loads everything a measuring child needs.
PRELOAD = "runners.preload"


class ForkServer:
    """Start it as early as possible: preloading takes seconds, and goes on while the parent works."""

    def __init__(self, threads: int = 0, *, preload: Sequence[str] = (PRELOAD,)) -> None:
        """``threads`` 0: all cores. ``preload``: modules that children then need not load."""
        self._context = multiprocessing.get_context("forkserver")
        self._preload = list(preload)
        self._threads = threads or cores()

    def start(self) -> None:
        """Start the server unless it runs; returns at once."""
        self._context.set_forkserver_preload(self._preload)
        with _environment(self._server_environment()):
            forkserver.ensure_running()

    def stop(self) -> None:
        """End the server now rather than with this process. Its children must have ended."""
        # Private in CPython, though its own tests rely on it. Without it the server still ends when
        # this process does, because a pipe that only this process holds open then hangs up.
        server = getattr(forkserver, "_forkserver", None)
        pid, end = getattr(server, "_forkserver_pid", None), getattr(server, "_stop", None)
        if pid is not None and end is not None:
            # Alone, _stop would wait for whoever else has inherited that pipe.
            os.kill(pid, signal.SIGTERM)
            end()

    def _server_environment(self) -> dict[str, str]:
        roots = [str(Path(suite.__file__).resolve().parent.parent), *sys.path]
        return {
            **server_environment(self._threads),
            # Asks NVML, not the driver, whether there is a card: a driver does not survive a fork.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            # The server must find what the parent finds; it ignores an import that fails.
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(str(Path(r).resolve()) for r in roots)),
        }

    def fork(self, job: Job) -> ForkServerProcess:
        """A started child that measures ``job``; its log file is emptied first."""
        log = job.store.log_path(job.key)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        return self._start(child.run, (job,), str(job.key))

    def fork_worker(self, threads: int) -> tuple[ForkServerProcess, Connection]:
        """A started child that does one job after another, and where to send them."""
        ours, theirs = self._context.Pipe()
        process = self._start(child.work, (theirs, threads), "worker")
        theirs.close()
        return process, ours

    def ask(self, function: str, *arguments: Any, timeout_s: float = 120.0) -> Any:
        """What ``module:function`` returns in a child, as JSON types.

        Raises UsageError if the function did, RuntimeError if it failed or gave no answer in time.
        """
        receive, send = self._context.Pipe(duplex=False)
        with tempfile.NamedTemporaryFile(suffix=".log") as log, receive:
            path = Path(log.name)
            process = self._start(child.answer, (function, arguments, self._threads, path, send), function)
            send.close()
            try:
                if not receive.poll(timeout_s):
                    raise RuntimeError(f"{function}: no answer after {timeout_s:g} s")
                message = json.loads(receive.recv_bytes())
            except EOFError:
                process.join()
                output = path.read_text(encoding="utf-8", errors="replace").strip()
                raise RuntimeError(f"{function}: exit code {process.exitcode}; {output[-500:]}") from None
            finally:
                process.kill()
                process.join()
        if "usage" in message:
            raise UsageError(*message["usage"])
        if "error" in message:
            raise RuntimeError(f"{function}: {message['error']}")
        return message["value"]

    def probe(self, device: str) -> dict[str, Any]:
        """The fingerprint of ``device`` and this host; see :mod:`suite.measure.fingerprint`.

        Raises UsageError if the machine has no such device.
        """
        found: dict[str, Any] = self.ask("suite.measure.fingerprint:fingerprint", device)
        return found

    def _start(self, target: Any, arguments: tuple[Any, ...], name: str) -> ForkServerProcess:
        self.start()
        process = self._context.Process(target=target, args=arguments, name=name)
        process.start()
        return process


@contextlib.contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    """The parent's own libraries must not see what is meant for the server."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

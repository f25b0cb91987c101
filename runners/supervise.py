"""Watches one child: its time limit, its end, and the record of an end it could not record itself."""

import contextlib
import os
import re
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

from runners import where
from runners.job import Job
from runners.memory_limit import oom_kills
from suite.record import Record

Sentinel = int | Connection

_TAIL_LINES = 3
_TAIL_CHARACTERS = 400
# What multiprocessing calls the exit code of a child when the server that forked it is gone.
_SERVER_LOST = 255
# The last words of libraries that end the process themselves when there is no memory.
_OOM_WORDS = re.compile(
    r"bad_alloc|[Cc]annot allocate memory|can't allocate memory|Thread creation failed|^MemoryError", re.M
)


class Child:
    """A running child. Whoever waits for it waits on :attr:`sentinel`, at most :meth:`patience_s`."""

    def __init__(self, job: Job, process: ForkServerProcess) -> None:
        self.job = job
        self._kills_before = oom_kills()
        self._process = process
        # A first child waits for the server to load torch; that is not the child's time.
        self._deadline = time.monotonic() + job.session.limits.timeout_s
        self._signalled: signal.Signals | None = None
        self._timed_out = False
        self._interrupted = False

    @property
    def sentinel(self) -> Sentinel:
        """What becomes readable when the child has ended."""
        return self._process.sentinel

    def patience_s(self) -> float | None:
        """Seconds until :meth:`enforce` has something to do; None: nothing more can be done."""
        if self._signalled == signal.SIGKILL:
            return None
        return max(0.0, self._deadline - time.monotonic())

    def enforce(self) -> None:
        """If the time limit is over: SIGTERM to the group; after the grace period, SIGKILL."""
        if self._signalled == signal.SIGKILL or time.monotonic() < self._deadline:
            return
        if self._signalled is None:
            self._timed_out = True
            self._deadline += self.job.session.limits.grace_s
            self._signal(signal.SIGTERM)
        else:
            self._signal(signal.SIGKILL)

    def interrupt(self) -> None:
        """Kill the child and all it started, now."""
        self._interrupted = True
        self._signal(signal.SIGKILL)

    def conclude(self) -> Record:
        """Wait for the end, clean up what the child left running, and return its stored record.

        An interrupted attempt does not replace what an earlier one has measured.
        """
        self._process.join()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        store, earlier = self.job.store, self.job.store.read(self.job.key)
        # Its own record, if it is of this attempt and not of one that is now being repeated.
        if earlier is not None and earlier.started_at == self.job.started_at:
            return earlier
        record = self._post_mortem()
        if record.status == "interrupted" and earlier is not None:
            return earlier
        store.write(record)
        return record

    @property
    def _pid(self) -> int:
        pid = self._process.pid
        if pid is None:
            raise RuntimeError(f"{self.job.key} was never started")
        return pid

    def _signal(self, number: signal.Signals) -> None:
        self._signalled = number
        try:
            os.killpg(self._pid, number)
        except (ProcessLookupError, PermissionError):
            # It has ended, or is so young that it has no group of its own yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _post_mortem(self) -> Record:
        code = self._process.exitcode or 0
        log = self.job.store.log_path(self.job.key).read_text(encoding="utf-8", errors="replace")
        place = where.of_fault_log(log)
        if self._interrupted:
            return self._failed("interrupted", "Interrupted", "stopped by the user", place)
        if self._timed_out:
            limit = self.job.session.limits.timeout_s
            return self._failed("timeout", "Timeout", f"not done after {limit:g} s", place)
        if code < 0:
            return self._died_of(-code, log, place)
        ending = _tail(log)
        if code == _SERVER_LOST:
            message = "its fork server ended, or it exited with code 255 itself"
            return self._failed("crash", "ExitWithoutRecord", message, place)
        said = f"; the log ends: {ending}" if ending else "; the log is empty"
        if _OOM_WORDS.search(ending):
            return self._failed("oom", "ExitWithoutRecord", f"out of host memory{said}", place)
        message = f"exited with code {code} without a record{said}"
        return self._failed("crash", "ExitWithoutRecord", message, place)

    def _died_of(self, number: int, log: str, place: str) -> Record:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        if _OOM_WORDS.search(log):
            return self._failed("oom", name, f"out of host memory; died of {name}; {_tail(log)}", place)
        if number != signal.SIGKILL:
            return self._failed("crash", name, f"died of {name}", place)
        kills = oom_kills()
        if kills is not None and self._kills_before is not None and kills > self._kills_before:
            return self._failed("oom", name, "out of host memory: the kernel's OOM killer struck", place)
        hint = "killed from outside, perhaps by the host's OOM killer (see dmesg)"
        return self._failed("crash", name, f"died of {name}: {hint}", place)

    def _failed(self, status: str, kind: str, message: str, place: str) -> Record:
        return self.job.record(status, error={"type": kind, "message": message, "where": place})


def _tail(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return " | ".join(lines[-_TAIL_LINES:])[-_TAIL_CHARACTERS:]

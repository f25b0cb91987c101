"""Predictions from child processes that speak JSON lines: ``analysis`` itself never imports torch.

A child reads one request a line and writes one answer a line, in order, with the request's ``id``. What
the request holds and the answer means is between its two ends; see :mod:`analysis.validate.case`.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import IO, Any, Protocol

from suite.errors import UsageError

COMMAND = (sys.executable, "-m", "suite.predict.serve")
# A child that ends so often without one answer cannot be started at all.
_MOST_STILLBORN = 3


class Predict(Protocol):
    """Answers one request.

    ``request`` is ``{"config": a cell's resolved configuration, "hardware": a name of conf/hardware,
    "assumptions": {name: value}}``; the answer is ``{"figures": {"peak_allocated_bytes": ..},
    "detail": {..}}`` or ``{"error": text}``.
    """

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to ``request``."""
        ...


class PredictMany(Protocol):
    """Answers many requests: the position of each and its answer, in any order."""

    def __call__(self, requests: Sequence[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Position and answer of each request, as they come."""
        ...


def one_by_one(predict: Predict) -> PredictMany:
    """Many requests answered by a function of one, in order."""

    def many(requests: Sequence[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
        for position, asked in enumerate(requests):
            yield position, predict(asked)

    return many


class Child:
    """One process; started by the first request, and again by the next one after it has died."""

    def __init__(self, command: Sequence[str], timeout_s: float) -> None:
        self._command, self._timeout_s = list(command), timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None
        self._timed_out = False
        self._stopped = False
        self._lock = threading.Lock()
        self._has_answered = False
        self.stillborn_count = 0

    def answer(self, request: dict[str, Any], identity: int) -> dict[str, Any]:
        """The child's answer; ``{"error": ..}`` if it died, hung beyond the limit or wrote no JSON."""
        process = self._started()
        if process is None:
            return {"error": "predictor: stopped"}
        self._timed_out = False
        timer = threading.Timer(self._timeout_s, self._give_up, [process])
        timer.daemon = True
        timer.start()
        try:
            line = self._exchange(process, json.dumps(request | {"id": identity}))
        finally:
            timer.cancel()
        if not line:
            return {"error": self._epitaph()}
        self._has_answered = True
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            self.close()
            return {"error": f"no JSON: {line.strip()[:200]}"}
        if answer.get("id", identity) != identity:
            self.close()
            return {"error": f"answered request {answer['id']}, not {identity}"}
        return answer

    def stop(self) -> None:
        """Kill the process and start none again; a thread that waits for its answer gets an error."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """End the process and forget it. Not while another thread waits for its answer."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            # An end of input is the word to stop; who does not hear it is stopped.
            with contextlib.suppress(OSError):
                process.stdin.close()
            try:
                process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _started(self) -> subprocess.Popen[str] | None:
        with self._lock:
            return None if self._stopped else self._running()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            # Closed with the process.
            self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                encoding="utf-8",
                bufsize=1,
                # One process per core: threads of their own would only get in each other's way.
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        return self._process

    def _exchange(self, process: subprocess.Popen[str], text: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(text + "\n")
            process.stdin.flush()
        except OSError:
            return ""
        return process.stdout.readline()

    def _give_up(self, process: subprocess.Popen[str]) -> None:
        self._timed_out = True
        process.kill()

    def _epitaph(self) -> str:
        """Why there is no answer: the last line that the child wrote to stderr."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        said = ""
        if self._errors is not None:
            self._errors.seek(0)
            said = (self._errors.read().strip().splitlines() or [""])[-1]
        # Requests that are too large for it may follow each other: a child that once answered can.
        self.stillborn_count += not self._has_answered
        self.close()
        if self._timed_out:
            return f"predictor: no answer in {self._timeout_s:g} s"
        return f"predictor ended with code {code}" + (f": {said}" if said else "")


class Predictors:
    """``jobs`` children that share requests; a context manager that ends them.

    Raises UsageError from the iteration if the command cannot be started or ends without any answer.
    """

    def __init__(
        self, jobs: int = 0, command: Sequence[str] = COMMAND, *, timeout_s: float = 600.0
    ) -> None:
        self._children = [Child(command, timeout_s) for _ in range(jobs or len(os.sched_getaffinity(0)))]
        self._command = command
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "Predictors":
        return self

    def __exit__(self, *_: object) -> None:
        if any(thread.is_alive() for thread in self._threads):
            for child in self._children:
                child.stop()
        for thread in self._threads:
            thread.join()
        for child in self._children:
            child.close()

    def __call__(self, requests: Sequence[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Position and answer of each request, as they come."""
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for position in range(len(requests)):
            waiting.put(position)
        answers: queue.SimpleQueue[tuple[int, dict[str, Any]] | UsageError] = queue.SimpleQueue()
        stop = threading.Event()

        def serve(child: Child) -> None:
            while not stop.is_set():
                try:
                    position = waiting.get_nowait()
                except queue.Empty:
                    return
                answers.put(self._ask(child, requests[position], position))

        children = self._children[: len(requests)]
        self._threads = [threading.Thread(target=serve, args=(child,), daemon=True) for child in children]
        for thread in self._threads:
            thread.start()
        try:
            for _ in requests:
                answer = answers.get()
                if isinstance(answer, UsageError):
                    raise answer
                yield answer
        finally:
            stop.set()

    def _ask(
        self, child: Child, request: dict[str, Any], position: int
    ) -> tuple[int, dict[str, Any]] | UsageError:
        try:
            answer = child.answer(request, position)
        except OSError as problem:
            return UsageError("predictor", self._command[0], f"cannot be started: {problem.strerror}")
        if child.stillborn_count >= _MOST_STILLBORN:
            return UsageError("predictor", " ".join(self._command[1:]), answer["error"])
        return position, answer

"""The loop that keeps every device busy with one child, and waits without spinning for what happens."""

from collections import deque
from collections.abc import Callable, Iterable
from multiprocessing.connection import wait
from typing import Protocol

from runners.interrupts import Interrupts
from runners.job import Job
from runners.pool import Lease
from runners.schedule import BlockSchedule, Step
from runners.supervise import Child
from suite.record import Record


class Observer(Protocol):
    """Who is told what happens, in the parent, between children."""

    tick_s: float | None

    def started(self, step: Step, lease: Lease) -> None:
        """A child of ``step`` is running."""

    def recorded(self, step: Step, record: Record) -> bool:
        """Its record is stored. False: start nothing more."""

    def tick(self) -> None:
        """Called about every ``tick_s`` seconds while children run, unless that is None."""

    def interrupting(self) -> None:
        """The first Ctrl-C: what runs will finish, nothing more will start."""


class Executor:
    """Runs blocks over leases: a block stays on one lease, each lease has one child at a time.

    ``start`` starts the child of a job.
    """

    def __init__(
        self,
        start: Callable[[Job, Lease], Child],
        make_job: Callable[[Step, Lease], Job],
        observer: Observer,
        interrupts: Interrupts,
    ) -> None:
        self._start, self._make_job = start, make_job
        self._observer, self._interrupts = observer, interrupts
        self._stopping = False
        self._active: dict[Lease, BlockSchedule] = {}
        self._running: dict[Lease, tuple[Step, Child]] = {}

    def run(self, blocks: Iterable[BlockSchedule], leases: Iterable[Lease]) -> bool:
        """Run all blocks; False if it was interrupted or stopped before the end."""
        try:
            return self._run(deque(blocks), list(leases))
        except BaseException:
            for _, child in self._running.values():
                child.interrupt()
                child.conclude()
            raise

    def _run(self, waiting: deque[BlockSchedule], places: list[Lease]) -> bool:
        told = False
        while True:
            if self._interrupts.count and not told:
                told = self._stopping = True
                self._observer.interrupting()
            for lease in places:
                if lease not in self._running and not self._stopping:
                    self._start_next(lease, waiting)
            if not self._running:
                return not self._stopping
            self._wait()
            if self._interrupts.count > 1:
                for _, child in self._running.values():
                    child.interrupt()
            self._reap()

    def _start_next(self, lease: Lease, waiting: deque[BlockSchedule]) -> None:
        while True:
            schedule = self._active.get(lease)
            if schedule is None:
                if not waiting:
                    return
                schedule = self._active[lease] = waiting.popleft()
            step = schedule.next()
            if step is not None:
                break
            del self._active[lease]
        child = self._start(self._make_job(step, lease), lease)
        self._running[lease] = (step, child)
        self._observer.started(step, lease)

    def _wait(self) -> None:
        children = [child for _, child in self._running.values()]
        limits = [child.patience_s() for child in children]
        bounds = [limit for limit in [*limits, self._observer.tick_s] if limit is not None]
        sentinels = [child.sentinel for child in children]
        wait([*sentinels, self._interrupts.fileno()], min(bounds) if bounds else None)
        self._interrupts.drain()

    def _reap(self) -> None:
        ended = set(wait([child.sentinel for _, child in self._running.values()], timeout=0))
        for lease, (step, child) in list(self._running.items()):
            if child.sentinel in ended or self._interrupts.count > 1:
                record = child.conclude()
                del self._running[lease]
                self._active[lease].tell(record)
                if not self._observer.recorded(step, record):
                    self._stopping = True
            else:
                child.enforce()
        if self._running:
            self._observer.tick()

"""A session: one start of the program over the cells of one sweep, from its lock to its last words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from runners import closing, manifest
from runners.eta import Eta
from runners.executor import Executor
from runners.forkserver import ForkServer
from runners.interrupts import Interrupts
from runners.job import MEASURE, Job, timestamp
from runners.memory_limit import host_memory_limit
from runners.pool import Lease, leases
from runners.progress import Board, for_terminal, new_rows
from runners.schedule import (
    BlockSchedule,
    Rules,
    Step,
    blocks,
    cell_keys,
    goes_on,
    outstanding,
    redo_rule,
)
from runners.supervise import Child
from runners.threads import cores
from runners.workers import Workers
from suite.cell import Cell
from suite.config.schema import SessionConfig
from suite.measure.code_version import code_version
from suite.peak import peak_rates
from suite.record import InvalidRecord, Record, RecordKey
from suite.store import RecordStore
from suite.summary import CellSummary, summarise

if TYPE_CHECKING:
    from suite.tracking.base import Tracker

PREDICTED = ("predict",)
FAILURES = ("crash", "timeout", "wrong")
T = TypeVar("T")
Report = Callable[[Path], Path | None]


def run_session(
    cells: Sequence[Cell],
    session: SessionConfig,
    *,
    refused: Mapping[str, str],
    command: str,
    server: ForkServer,
    fingerprint: dict[str, Any],
    tracker: "Tracker",
    report: Report | None,
    measure: str = MEASURE,
) -> int:
    """Measure what is missing of ``cells`` and return the exit code.

    ``refused`` maps the ids of cells that cannot be measured to the reason. ``fingerprint`` is what
    ``server.probe`` said. ``report`` renders the sweep's folder and returns the page to open.
    ``measure`` names the function that children call.

    Raises UsageError, before anything is measured or written to the sweep, if the folder is in use
    or not writable, the tracker cannot be opened, or the sweep's records were made otherwise.
    """
    store = RecordStore(Path(session.paths.runs) / session.name)
    with manifest.sole_parent(store.root, session.name):
        devices = {cell.config.device for cell in cells}
        limit = host_memory_limit(session.limits.host_memory, "cpu" if "cpu" in devices else "")
        code = code_version()
        now = manifest.describe(
            cells,
            session,
            code=code,
            fingerprint=fingerprint,
            command=command,
            host_memory_bytes=limit,
        )
        current = manifest.reconcile(store, now, session)
        places = {}
        if session.mode != "predict":
            places = {device: leases(fingerprint, device, session.device_ids) for device in devices}
        tracker.open(current)
        store.write_manifest(current)

        def make_job(step: Step, lease: Lease) -> Job:
            cell, key = step
            return Job(
                cell=cell,
                pass_=key.pass_,
                round=key.round,
                session=session,
                root=store.root,
                code=code,
                fingerprint=fingerprint,
                # Since when this program runs tells its rounds from those of any other start.
                session_id=now["updated_at"],
                environment=dict(lease.environment),
                host_memory_bytes=limit if cell.config.device == "cpu" and key.pass_ != "predict" else None,
                measure=measure,
            )

        run = _Run(cells, session, store, current, refused, tracker, make_job)
        return run.go(server, places, report)


class _Run:
    """What a running session knows; told by the executor, it tells progress and tracker."""

    def __init__(
        self,
        cells: Sequence[Cell],
        session: SessionConfig,
        store: RecordStore,
        current: dict[str, Any],
        refused: Mapping[str, str],
        tracker: "Tracker",
        make_job: Callable[[Step, Lease], Job],
    ) -> None:
        self._cells, self._session, self._store = cells, session, store
        self._manifest, self._tracker, self._make_job = current, tracker, make_job
        self._refused = [cell for cell in cells if cell.id in refused]
        self._reasons = refused
        self._going = [cell for cell in cells if cell.id not in refused]
        found = list(store.scan())
        self._records = {record.key: record for record in found if isinstance(record, Record)}
        self._damaged = [problem for problem in found if isinstance(problem, InvalidRecord)]
        self._rules = Rules(
            passes=self._passes_of,
            rounds=session.rounds,
            budget_bytes=session.budget_bytes,
            records=self._records,
            redo=redo_rule(session.retry, current["redo_before"]),
            reference=session.reference,
        )
        self._workloads = {cell.id: cell.workload_id for cell in cells}
        self._mirrored: dict[str, CellSummary] = {}
        self._failures = 0
        self._eta = Eta(session.trainer)
        self.progress = for_terminal(self._new_board())
        self.tick_s = self.progress.tick_s

    def _new_board(self) -> Board:
        pending: set[RecordKey] = set()
        for block in blocks(self._going, self._session.reference):
            left = outstanding(block, self._rules)
            for cell in block:
                self._eta.add(cell, left[cell.id])
                pending.update(left[cell.id])
        return Board(
            name=self._session.name,
            rounds=self._session.rounds,
            rows=new_rows(self._cells),
            pending=pending,
            time_left_s=lambda: self._eta.left_s(pending),
            budget_bytes=self._session.budget_bytes,
        )

    def go(self, server: ForkServer, places: Mapping[str, list[Lease]], report: Report | None) -> int:
        """Run everything, then report, close and print; the exit code."""
        with Interrupts() as interrupts:
            try:
                with self.progress:
                    self._warn_of_damage()
                    self._record_refused()
                    done = self._predict(server, interrupts) and self._measure(server, interrupts, places)
            except BaseException:
                self._manifest.update(state="stopped", updated_at=timestamp())
                self._spared("tracking failed", lambda: self._tracker.close(self._manifest, None))
                raise
            # From here on a Ctrl-C ends the report or the tracker's farewell, not the session.
            interrupts.release()
            state = "interrupted" if interrupts.count else "finished" if done else "stopped"
            self._manifest.update(state=state, updated_at=timestamp())
            self._store.write_manifest(self._manifest)
            hurried = interrupts.count > 1
            page = None
            if report is not None and not hurried:
                page = self._spared("the report failed", lambda: report(self._store.root))
            if not hurried:
                self._mirror_what_changed()
            folder = page.parent if page is not None else None
            self._spared("tracking failed", lambda: self._tracker.close(self._manifest, folder))
        return self._say(page, state)

    def _predict(self, server: ForkServer, interrupts: Interrupts) -> bool:
        """Every cell's prediction, before anything is measured: on each core, in children that stay."""
        if self._session.mode == "measure":
            return True
        workers = Workers(server)
        places = [Lease(f"worker {core}") for core in range(cores())]
        self._eta.places = len(places)
        rules = replace(self._rules, passes=lambda _: PREDICTED)
        waiting = [
            BlockSchedule([cell], rules, completed=self._predicted, remeasuring=self._remeasuring)
            for block in blocks(self._going, self._session.reference)
            for cell in block
        ]
        try:
            return Executor(workers.start, self._make_job, self, interrupts).run(waiting, places)
        finally:
            workers.stop()

    def _predicted(self, cell: Cell) -> None:
        """The cell's last word, unless it is measured too."""
        record = self._records.get(RecordKey(cell.id, "predict", 0))
        goes = record is not None and goes_on(record, self._session.budget_bytes)
        if not goes or self._passes_of(cell) == PREDICTED:
            self._completed(cell)

    def _measure(
        self, server: ForkServer, interrupts: Interrupts, places: Mapping[str, list[Lease]]
    ) -> bool:
        if self._session.mode == "predict":
            return True

        def start(job: Job, _: Lease) -> Child:
            return Child(job, server.fork(job))

        executor = Executor(start, self._make_job, self, interrupts)
        schedules: dict[str, list[BlockSchedule]] = {}
        for block in blocks(self._going, self._session.reference):
            schedules.setdefault(block[0].config.device, []).append(self._schedule(block))
        for device, waiting in schedules.items():
            self._eta.places = min(len(places[device]), len(waiting))
            if not executor.run(waiting, places[device]):
                return False
        return True

    def _schedule(self, block: Sequence[Cell]) -> BlockSchedule:
        return BlockSchedule(block, self._rules, completed=self._completed, remeasuring=self._remeasuring)

    def _remeasuring(self, keys: frozenset[RecordKey]) -> None:
        names = [cell.policy_label for cell in self._cells if cell.id in {key.cell for key in keys}]
        self.progress.note(
            f"measuring {len(keys)} rounds of {', '.join(names)} again: only rounds of one session can be "
            "compared"
        )
        for key in keys - self.progress.board.pending:
            self._eta.add(next(cell for cell in self._cells if cell.id == key.cell), [key])
            self.progress.board.pending.add(key)

    def _passes_of(self, cell: Cell) -> tuple[str, ...]:
        return self._session.passes_of(cell.id)

    def _warn_of_damage(self) -> None:
        if not self._damaged:
            return
        more = f" and {len(self._damaged) - 1} more" if len(self._damaged) > 1 else ""
        self.progress.note(
            f"warning: no record, so what it should hold counts as not measured: {self._damaged[0]}{more}"
        )

    def _record_refused(self) -> None:
        for cell in self._refused:
            job = self._make_job((cell, RecordKey(cell.id, self._passes_of(cell)[0], 0)), Lease("none"))
            record = self._records.get(job.key)
            if record is None or record.status != "unsupported":
                reason = {"type": "Unsupported", "message": self._reasons[cell.id], "where": ""}
                record = job.record("unsupported", error=reason)
                self._store.write(record)
            self._records[job.key] = record
            self._completed(cell)

    def started(self, step: Step, lease: Lease) -> None:
        """See :class:`runners.executor.Observer`."""
        self.progress.started(step[1], lease.name)

    def recorded(self, step: Step, record: Record) -> bool:
        """See :class:`runners.executor.Observer`."""
        cell, key = step
        self._records[key] = record
        self.progress.board.pending.discard(key)
        self._eta.took(key, record.wall_s)
        self.progress.recorded(key, record)
        self._failures += record.status in FAILURES
        if not self._failures or record.status not in FAILURES:
            return True
        if self._session.on_failure == "stop":
            self.progress.note(f"stopping: {cell.policy_label} is {record.status}, on_failure=stop")
            return False
        if self._session.max_failures and self._failures >= self._session.max_failures:
            self.progress.note(f"stopping: {self._failures} failures, max_failures reached")
            return False
        return True

    def tick(self) -> None:
        """See :class:`runners.executor.Observer`."""
        self.progress.tick()

    def interrupting(self) -> None:
        """See :class:`runners.executor.Observer`."""
        self.progress.note("finishing what runs; press Ctrl-C again to kill it")

    def _completed(self, cell: Cell) -> None:
        self.progress.board.pending.difference_update(
            cell_keys(cell, self._passes_of(cell), self._session.rounds)
        )
        summary = self._summaries(self._workloads[cell.id])[cell.id]
        self.progress.completed(summary)
        self._mirror(summary)

    def _mirror(self, summary: CellSummary) -> None:
        self._mirrored[summary.cell] = summary
        self._spared("tracking failed", lambda: self._tracker.cell(summary, self._store))

    def _mirror_what_changed(self) -> None:
        """What is said of a cell may hang on cells that came later: its reference, the best peak rate."""
        for cell, summary in self._summaries().items():
            if self._mirrored.get(cell, summary) != summary:
                self._mirror(summary)

    def _summaries(self, workload: str | None = None) -> dict[str, CellSummary]:
        wanted = [
            record
            for record in self._records.values()
            if record.cell in self._workloads and workload in (None, record.workload)
        ]
        return summarise(
            wanted,
            budget_bytes=self._session.budget_bytes,
            reference=self._session.reference,
            rates=peak_rates(self._records.values()),
        )

    def _spared(self, failing: str, action: Callable[[], T]) -> T | None:
        """Nothing measured is lost because something that only shows it failed: that is one line."""
        try:
            return action()
        except (Exception, KeyboardInterrupt) as problem:  # noqa: BLE001
            first = str(problem).partition("\n")[0]
            self.progress.note(f"warning: {failing}: {type(problem).__name__}: {first}")
            return None

    def _say(self, page: Path | None, state: str) -> int:
        found = self._summaries()
        ordered = [found[cell.id] for cell in self._cells if cell.id in found]
        closing.print_closing(
            ordered,
            reference=self._session.reference,
            root=self._store.root,
            page=page,
            tracker=self._tracker,
        )
        if state != "finished":
            print(f"{state} after {len(ordered)} of {len(self._cells)} cells; the same command goes on")
        return closing.exit_code(found, len(self._cells), state)

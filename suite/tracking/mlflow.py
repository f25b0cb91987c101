"""``tracking=mlflow``: one parent run per sweep, one child run per cell, in any MLflow store."""

import logging
import math
import time
from pathlib import Path
from typing import Any

from suite.config.schema import PathsConfig, TrackingConfig
from suite.errors import UsageError
from suite.store import RecordStore
from suite.summary import CellSummary
from suite.tracking.mlflow_store import MlflowStore, quiet, reason
from suite.tracking.mlflow_sweep import MlflowSweep

log = logging.getLogger(__name__)

# What a failed or slow call costs is spread over a pause this many times as long: a store that
# does not answer takes at most 5 % of a sweep's time, however its timeouts are set.
_PAUSE_FACTOR = 20
_SHORTEST_PAUSE_S = 10.0
_SLOW_S = 2.0

# Time one call of cell() may spend on what earlier calls could not send.
_CATCH_UP_S = 2.0

# Answers about one request and not about the store.
_REJECTIONS = {
    "BAD_REQUEST",
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "RESOURCE_ALREADY_EXISTS",
    "RESOURCE_DOES_NOT_EXIST",
}


class MlflowTracker:
    """A :class:`suite.tracking.base.Tracker` on the client interface of MLflow, without global state."""

    def __init__(self, config: TrackingConfig, paths: PathsConfig) -> None:
        self._store = MlflowStore.of(config, paths)
        self._experiment_id: str | None = None
        self._sweep: MlflowSweep | None = None
        self._waiting: dict[str, tuple[CellSummary, RecordStore]] = {}
        self._unfinished = False
        self._rejected: set[str] = set()
        self._resume_at_s = 0.0
        self._away = False
        # What is known of the store may be wrong: an answer was lost, or a run was deleted in the UI.
        self._stale = False

    @property
    def pending(self) -> int:
        """Cells not sent, and one for the sweep itself if its end could not be sent."""
        return len(self._waiting) + self._unfinished

    @quiet()
    def open(self, manifest: dict[str, Any]) -> None:
        """Connect; create the database, the experiment and the sweep's run, or find them.

        Raises :class:`UsageError` where the store cannot be reached or written.
        """
        try:
            client, self._experiment_id = self._store.connect()
            self._sweep = MlflowSweep(client, self._experiment_id, manifest)
        except UsageError:
            raise
        except Exception as problem:  # MLflow lets the errors of its back ends through
            raise self._store.refuse(problem) from problem

    @quiet()
    def cell(self, summary: CellSummary, store: RecordStore) -> None:
        """Send one cell, and some of what is waiting; while the store rests, only remember it."""
        self._waiting[summary.cell] = (summary, store)
        self._rejected.discard(summary.cell)
        now_s = time.monotonic()
        if now_s >= self._resume_at_s:
            self._send(until_s=now_s + _CATCH_UP_S)

    @quiet()
    def close(self, manifest: dict[str, Any], report_dir: Path | None) -> None:
        """Send all that is waiting, then the sweep's state and report."""
        self._rejected.clear()
        self._send(until_s=math.inf)
        self._unfinished = True
        if not self._away:
            try:
                self._opened().finish(manifest, report_dir, len(self._waiting))
                self._unfinished = False
            except Exception as problem:  # noqa: BLE001 - a mirror never ends a sweep
                log.warning("MLflow did not take the end of the sweep: %s", reason(problem))
        if self.pending:
            log.warning(
                "MLflow (%s) lacks %d of this sweep's runs; the records are complete: run the sweep "
                "again, or `python -m analysis sync`",
                self._store.shown,
                self.pending,
            )

    def where(self) -> str:
        """The store, for a database the command that opens the UI, and the experiment's page in it."""
        return self._store.where(self._experiment_id if self._sweep else None)

    def _opened(self) -> MlflowSweep:
        if self._sweep is None:
            raise RuntimeError("the tracker was not opened")
        return self._sweep

    def _send(self, *, until_s: float) -> None:
        for cell in reversed([c for c in self._waiting if c not in self._rejected]):
            began_s = time.monotonic()
            if began_s > until_s:
                return
            try:
                if self._stale:
                    self._opened().refresh()
                    self._stale = False
                self._opened().send(*self._waiting[cell])
            except Exception as problem:  # noqa: BLE001 - a mirror never ends a sweep
                self._stale = True
                if not _is_rejection(problem):
                    self._pause(time.monotonic() - began_s, problem)
                    return
                self._rejected.add(cell)
                log.warning("MLflow did not take cell %s: %s", cell, reason(problem))
                continue
            del self._waiting[cell]
            if self._away:
                log.info("MLflow answers again")
                self._away = False
            spent_s = time.monotonic() - began_s
            if spent_s > _SLOW_S:
                self._resume_at_s = time.monotonic() + _PAUSE_FACTOR * spent_s

    def _pause(self, spent_s: float, problem: Exception) -> None:
        self._resume_at_s = time.monotonic() + max(_SHORTEST_PAUSE_S, _PAUSE_FACTOR * spent_s)
        if not self._away:
            log.warning(
                "MLflow does not answer (%s); measuring goes on, cells are sent when it does",
                reason(problem),
            )
        self._away = True


def _is_rejection(problem: Exception) -> bool:
    """Whether ``problem`` is about one cell, so that the store may well take the next one."""
    about_content = isinstance(problem, ValueError | TypeError | LookupError | FileNotFoundError)
    return about_content or getattr(problem, "error_code", None) in _REJECTIONS

"""One (cell, pass, round) handed to a child, and the record that comes of it whoever writes it."""

import dataclasses
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runners.threads import openmp_waiting
from suite.cell import Cell
from suite.config.schema import SessionConfig
from suite.record import Record, RecordKey
from suite.store import RecordStore

MEASURE = "suite.measure:measure"


def timestamp() -> str:
    """Now, in UTC, ISO 8601 with microseconds: it also tells one attempt at a key from the next."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def protocol(session: SessionConfig, threads: Any, host_memory_bytes: int | None) -> dict[str, Any]:
    """How cells are measured, as stored in records and in the manifest."""
    return {
        "trainer": dataclasses.asdict(session.trainer),
        "threads": threads,
        "openmp_waiting": openmp_waiting(),
        "timeout_s": session.limits.timeout_s,
        "host_memory_bytes": host_memory_bytes,
        **({"assumptions": dict(session.assumptions)} if session.mode != "measure" else {}),
    }


@dataclass(frozen=True)
class Job:
    """Everything a child needs. It travels pickled through a private pipe, never through a file.

    ``environment`` holds the device lease, set before any device is touched. ``measure`` is the
    dotted ``module:function`` that the child calls. ``session_id`` is written into time records: only
    rounds of one session may be compared.
    """

    cell: Cell
    pass_: str
    round: int
    session: SessionConfig
    root: Path
    code: dict[str, Any]
    fingerprint: dict[str, Any]
    session_id: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    host_memory_bytes: int | None = None
    measure: str = MEASURE
    started_at: str = field(default_factory=timestamp)
    # The monotonic clock is the machine's, not the process's: the child subtracts from it too.
    forked_s: float = field(default_factory=time.monotonic)

    @property
    def key(self) -> RecordKey:
        """The key of the record this job ends in."""
        return RecordKey(self.cell.id, self.pass_, self.round)

    @property
    def store(self) -> RecordStore:
        """Where that record goes."""
        return RecordStore(self.root)

    def record(
        self,
        status: str,
        *,
        figures: dict[str, float] | None = None,
        detail: dict[str, Any] | None = None,
        warnings: list[str] | None = None,
        error: dict[str, str] | None = None,
    ) -> Record:
        """The record of this job's outcome, its wall time taken now."""
        named = {"session": self.session_id} if self.pass_ == "time" and self.session_id else {}
        return Record(
            cell=self.cell.id,
            workload=self.cell.workload_id,
            pass_=self.pass_,
            round=self.round,
            config=self.cell.resolved,
            protocol=protocol(self.session, self.cell.config.threads, self.host_memory_bytes),
            code=self.code,
            fingerprint=self.fingerprint,
            status=status,
            figures=figures or {},
            detail={**(detail or {}), **named},
            warnings=warnings or [],
            error=error,
            started_at=self.started_at,
            wall_s=time.monotonic() - self.forked_s,
        )

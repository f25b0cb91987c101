"""From the folder of a sweep to its cells, in the order in which they were asked for."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suite.cell import policy_label, workload_label
from suite.errors import UsageError
from suite.record import InvalidRecord, Record
from suite.store import RecordStore
from suite.summary import CellSummary, summarise

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class RunData:
    """Everything a report needs of one sweep.

    ``cells`` holds every cell of the manifest in its order, those without a record with the status
    ``not measured``, then cells that have records but are in no manifest. ``invalid`` holds one line
    per file that is no record.
    """

    root: Path
    manifest: dict[str, Any]
    cells: tuple[CellSummary, ...]
    invalid: tuple[str, ...]
    records_count: int

    @property
    def name(self) -> str:
        """The sweep's name; the folder's, if there is no manifest."""
        return str(self.manifest.get("name") or self.root.name)

    @property
    def reference(self) -> str:
        """Label of the policy that others are compared with."""
        return str(self.manifest.get("reference") or "none")

    @property
    def budget_bytes(self) -> int | None:
        """The memory limit that cells are judged against, in bytes."""
        budget = self.manifest.get("budget_bytes")
        return budget if isinstance(budget, int) else None

    @property
    def records(self) -> tuple[Record, ...]:
        """Every valid record."""
        return tuple(record for cell in self.cells for record in cell.records)

    def counts(self) -> dict[str, int]:
        """How many cells have each status, the most frequent first."""
        return dict(Counter(cell.status for cell in self.cells).most_common())

    def pending(self, cell: CellSummary) -> str:
        """Which passes a healthy cell still lacks, as text: ``time (2 of 5 rounds)``; else empty."""
        if cell.status not in ("ok", "noop"):
            return ""
        have = {record.pass_ for record in cell.records}
        lacking = []
        for name in self._passes_of(cell):
            rounds = self.manifest.get("rounds")
            if name == "time" and isinstance(rounds, int) and len(cell.rounds_s) < rounds:
                lacking.append(f"time ({len(cell.rounds_s)} of {rounds} rounds)")
            elif name not in have:
                lacking.append(str(name))
        return ", ".join(lacking)

    def _passes_of(self, cell: CellSummary) -> tuple[str, ...]:
        for entry in self.manifest.get("cells") or ():
            if entry["id"] == cell.cell and "passes" in entry:
                return tuple(entry["passes"])
        return tuple(self.manifest.get("passes") or ())


def load_run(run_dir: Path) -> RunData:
    """Read the sweep in ``run_dir``. Raises :class:`UsageError` if the folder holds none."""
    store = RecordStore(run_dir)
    manifest = store.read_manifest()
    records: list[Record] = []
    invalid: list[str] = []
    for found in store.scan():
        problem = str(found) if isinstance(found, InvalidRecord) else _unreadable(found.config)
        if isinstance(found, Record) and not problem:
            records.append(found)
        else:
            where = "" if isinstance(found, InvalidRecord) else f"{found.key}.json: "
            invalid.append(f"{where}{problem}")
    if manifest is None and not records and not invalid:
        raise UsageError("run_dir", run_dir, "expected the folder of a sweep, with sweep.json and records/")
    run = RunData(run_dir, manifest or {}, (), tuple(invalid), len(records))
    summaries = summarise(records, budget_bytes=run.budget_bytes, reference=run.reference)
    cells = []
    for entry in run.manifest.get("cells") or ():
        measured = entry["id"] in summaries
        cells.append(summaries.pop(entry["id"]) if measured else _not_measured(entry))
    return replace(run, cells=(*cells, *summaries.values()))


def _not_measured(entry: dict[str, Any]) -> CellSummary:
    config = entry["config"]
    return CellSummary(
        cell=entry["id"],
        workload=entry["workload"],
        policy=policy_label(config["policy"]),
        workload_label=workload_label(config),
        config=config,
        status=NOT_MEASURED,
        reason="no record yet",
    )


def _unreadable(config: dict[str, Any]) -> str:
    """Why the names of a record's cell cannot be told; a record says little of its own config."""
    try:
        policy_label(config["policy"])
        workload_label(config)
    except (KeyError, TypeError, AttributeError) as problem:
        return f"config is not a cell's: {type(problem).__name__}: {problem}"
    return ""

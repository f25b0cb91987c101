"""From the records of one cell to its verdict and headline figures.

The status of a record says how one process ended. The status of a *cell* also needs the reference
policy (a ``noop`` saved nothing that the reference keeps) and the sweep's budget (a cell whose
peak exceeds it is ``oom`` by the limit). Both are judged here, from records alone, so that a new
budget needs no new measurement and every reader comes to the same verdict.
"""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from suite.cell import policy_label, workload_label
from suite.peak import PeakRate, RateKey, peak_rates, rate_key
from suite.record import Record
from suite.units import show_apart

# Worst first: a cell has the worst status any of its records has.
_SEVERITY = ("wrong", "crash", "oom", "timeout", "invalid", "unsupported", "interrupted", "noop", "ok")

_HEADLINES = (
    "peak_bytes",
    "saved_bytes",
    "static_bytes",
    "activation_bytes",
    "model_flops",
    "executed_flops",
    "recomputed_flops",
)


@dataclass(frozen=True)
class CellSummary:
    """What a table row, a plot point and an MLflow run show of one cell. None: not measured.

    ``rounds_s`` holds step times by round; ``rounds_by_session_s`` by session and round, which is what
    may be compared with another cell (:mod:`suite.paired`).
    """

    cell: str
    workload: str
    policy: str
    workload_label: str
    config: dict[str, Any]
    status: str
    reason: str
    peak_bytes: float | None = None
    saved_bytes: float | None = None
    static_bytes: float | None = None
    activation_bytes: float | None = None
    peak_phase: str | None = None
    model_flops: float | None = None
    executed_flops: float | None = None
    recomputed_flops: float | None = None
    step_time_s: float | None = None
    tokens_per_s: float | None = None
    mfu_ratio: float | None = None
    hfu_ratio: float | None = None
    peak_flops_source: str | None = None
    rounds_s: dict[int, float] = field(default_factory=dict)
    rounds_by_session_s: dict[tuple[str, int], float] = field(default_factory=dict)
    memory: Record | None = None
    flops: Record | None = None
    predict: Record | None = None
    parity: Record | None = None
    times: tuple[Record, ...] = ()

    @property
    def proven(self) -> bool:
        """Whether its gradients were compared and are right; uncompiled ``none`` is the measure of them."""
        compared = self.parity is not None and self.parity.status == "ok"
        plain = self.config["compile"] == "none" and self.config["policy"]["family"] == "none"
        return compared or plain

    @property
    def predicted(self) -> bool:
        """Whether what is said of it is a prediction, nothing of it having been measured."""
        return self.predict is not None and not any(r.pass_ != "predict" for r in self.records)

    @property
    def prediction_errors(self) -> dict[str, float]:
        """Predicted less measured, by figure; empty unless the cell was predicted and measured."""
        if self.predict is None:
            return {}
        measured = {**_figures(self.memory), **_figures(self.flops)} if not self.predicted else {}
        found = {name: self.predict.figures.get(name) for name in _HEADLINES}
        errors = {n: v - measured[n] for n, v in found.items() if v is not None and n in measured}
        if self.times and self.step_time_s is not None and "step_time_s" in self.predict.figures:
            errors["step_time_s"] = self.predict.figures["step_time_s"] - self.step_time_s
        return errors

    @property
    def records(self) -> tuple[Record, ...]:
        """Every record behind this summary."""
        measured = [r for r in (self.memory, self.flops) if r is not self.predict]
        passes = (self.predict, *measured, self.parity)
        return tuple(r for r in passes if r is not None) + self.times


def summarise(
    records: Iterable[Record],
    *,
    budget_bytes: int | None,
    reference: str = "none",
    rates: Mapping[RateKey, PeakRate] | None = None,
) -> dict[str, CellSummary]:
    """Cell id to summary, judged against ``budget_bytes`` and the cells of the ``reference`` policy.

    ``rates`` are the denominators of MFU where ``records`` are not the whole sweep.
    """
    records = list(records)
    rates = peak_rates(records) if rates is None else rates
    by_cell: dict[str, list[Record]] = {}
    for record in records:
        by_cell.setdefault(record.cell, []).append(record)
    raw = {cell: _collect(found, rates) for cell, found in by_cell.items()}
    references = {s.workload: s for s in raw.values() if s.policy == reference}
    return {
        cell: _judge(summary, references.get(summary.workload), budget_bytes)
        for cell, summary in raw.items()
    }


def _collect(records: list[Record], rates: Mapping[RateKey, PeakRate]) -> CellSummary:
    first = records[0]
    single = {r.pass_: r for r in records if r.pass_ != "time"}
    times = tuple(sorted((r for r in records if r.pass_ == "time"), key=lambda r: r.round))
    measured = [r for r in times if r.status == "ok"]
    worst = min(records, key=lambda r: _SEVERITY.index(r.status))
    predict = single.get("predict")
    memory, flops = single.get("memory", predict), single.get("flops", predict)
    figures: dict[str, float] = {}
    for record in (memory, flops):
        if record is not None:
            figures.update(record.figures)
    values: dict[str, Any] = {name: figures.get(name) for name in _HEADLINES}
    if measured:
        step = statistics.median(r.figures["step_time_s"] for r in measured)
        values["step_time_s"] = step
        values["tokens_per_s"] = statistics.median(r.figures["tokens_per_s"] for r in measured)
        peak = rates.get(rate_key(measured[0]))
        values["peak_flops_source"] = peak.source if peak else measured[0].detail.get("peak_flops_source")
        if peak and values["model_flops"] is not None:
            values["mfu_ratio"] = values["model_flops"] / step / peak.flops_per_s
            values["hfu_ratio"] = values["executed_flops"] / step / peak.flops_per_s
    elif predict is not None and not times:
        values["step_time_s"] = predict.figures.get("step_time_s")
        values["tokens_per_s"] = predict.figures.get("tokens_per_s")
    return CellSummary(
        cell=first.cell,
        workload=first.workload,
        policy=policy_label(first.config["policy"]),
        workload_label=workload_label(first.config),
        config=first.config,
        status=worst.status,
        reason=(worst.error or {}).get("message", ""),
        peak_phase=memory.detail.get("peak_phase") if memory else None,
        rounds_s={r.round: r.figures["step_time_s"] for r in measured},
        rounds_by_session_s={(r.session, r.round): r.figures["step_time_s"] for r in measured},
        memory=memory,
        flops=flops,
        predict=predict,
        parity=single.get("parity"),
        times=times,
        **values,
    )


def _judge(summary: CellSummary, reference: CellSummary | None, budget_bytes: int | None) -> CellSummary:
    if summary.status != "ok":
        return summary
    over = over_budget(summary.memory, budget_bytes) or over_budget(summary.predict, budget_bytes)
    if over:
        return _with_status(summary, "oom", over)
    if reference is not None and reference.cell != summary.cell and _same_work(summary, reference):
        return _with_status(
            summary,
            "noop",
            f"keeps the same bytes and executes the same FLOPs as {reference.policy}",
        )
    return summary


def over_budget(memory: Record | None, budget_bytes: int | None) -> str:
    """Why a cell with this record does not fit the budget; empty if it fits or the record has no peak."""
    passes = ("memory", "predict")
    if memory is None or budget_bytes is None or memory.status != "ok" or memory.pass_ not in passes:
        return ""
    peak = memory.figures["peak_bytes"]
    if peak <= budget_bytes:
        return ""
    phase = memory.detail.get("peak_phase", "step")
    needed, budget = show_apart(peak, budget_bytes)
    said = "predicted: " if memory.pass_ == "predict" else ""
    return f"{said}needs {needed} in {phase}, the budget is {budget}"


def _figures(record: Record | None) -> dict[str, float]:
    return {} if record is None or record.pass_ == "predict" else record.figures


def _same_work(summary: CellSummary, reference: CellSummary) -> bool:
    pairs = (
        (summary.saved_bytes, reference.saved_bytes),
        (summary.executed_flops, reference.executed_flops),
    )
    return all(a is not None and a == b for a, b in pairs)


def _with_status(summary: CellSummary, status: str, reason: str) -> CellSummary:
    return CellSummary(**{**vars(summary), "status": status, "reason": reason})


def count_statuses(summaries: Mapping[str, CellSummary]) -> dict[str, int]:
    """How many cells have each status, worst first, zeroes left out."""
    statuses = [s.status for s in summaries.values()]
    return {s: statuses.count(s) for s in _SEVERITY if s in statuses}

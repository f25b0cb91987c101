"""The cells of a sweep side by side: which share a workload, and what each costs against the reference.

A *group* is everything of a workload but its sequence length: one model, batch, kernel, precision.
Inside a workload every cost is relative to one *baseline*: the sweep's reference policy or, where
that has no time to compare with (it may not fit the budget), the fastest policy measured there, which is
then named.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analysis.load import RunData
from analysis.statistics import pareto_front
from suite.cell import canonical
from suite.paired import PairedRatio, comparable, step_time_ratio
from suite.summary import CellSummary

_DIMENSIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "Model": lambda c: str(c["model"]["name"]),
    "Blocks": lambda c: str(c["model"]["n_layers"]),
    "Batch": lambda c: str(c["batch_size"]),
    "Precision": lambda c: str(c["precision"]),
    "Attention": lambda c: str(c["attention"]),
    "Optimizer": lambda c: f"{c['optimizer']['kind']}-{c['optimizer']['impl']}",
    "Data": lambda c: str(c["data"]["kind"]),
    "Compile": lambda c: "/".join(filter(None, (str(c["compile"]), c.get("compile_backend")))),
    "Device": lambda c: str(c["device"]),
}
_SUMMARY_COLUMNS = (
    "peak_bytes",
    "peak_phase",
    "saved_bytes",
    "static_bytes",
    "activation_bytes",
    "model_flops",
    "executed_flops",
    "recomputed_flops",
    "step_time_s",
    "tokens_per_s",
    "mfu_ratio",
    "hfu_ratio",
)
# Prefixes that make a bare value readable inside a label.
_LABELLED = {"Blocks": "blocks ", "Batch": "batch ", "Compile": "compile "}


@dataclass(frozen=True)
class Row:
    """One cell with what it costs. ``cost`` is a ratio to the workload's baseline, 1 for itself.

    ``cost`` is the paired step time where times were measured, else the executed FLOPs; None where
    neither is known. ``dimensions`` holds the values that vary over the sweep.
    """

    summary: CellSummary
    dimensions: dict[str, str]
    seq_len: int
    pending: str
    is_reference: bool
    ratio: PairedRatio | None = None
    cost: float | None = None
    peak_ratio: float | None = None
    on_front: bool = False

    @property
    def usable(self) -> bool:
        """Whether the cell is a candidate for an answer: healthy, with a known peak."""
        return self.summary.status == "ok" and self.summary.peak_bytes is not None

    @property
    def plain_cost(self) -> float:
        """``cost``, or that of the baseline where there is none."""
        return 1.0 if self.cost is None else self.cost

    @property
    def low_cost(self) -> float:
        """Lower bound of the cost; the cost itself without an interval."""
        return self.ratio.low if self.ratio and self.ratio.low is not None else self.plain_cost

    @property
    def high_cost(self) -> float:
        """Upper bound of the cost; the cost itself without an interval."""
        return self.ratio.high if self.ratio and self.ratio.high is not None else self.plain_cost


@dataclass(frozen=True)
class Workload:
    """The cells that share everything but the policy. ``cost_kind``: time, flops or empty."""

    group: str
    seq_len: int
    rows: tuple[Row, ...]
    baseline: Row | None
    cost_kind: str

    @property
    def baseline_policy(self) -> str:
        """Label of the policy that costs are relative to; empty if there is none."""
        return self.baseline.summary.policy if self.baseline else ""

    @property
    def label(self) -> str:
        """``attention eager, 1,024 tokens``."""
        tokens = f"{self.seq_len:,} tokens"
        return f"{self.group}, {tokens}" if self.group else tokens

    @property
    def slug(self) -> str:
        """An identifier for anchors, the same in every rendering of the same sweep."""
        return f"w-{self.rows[0].summary.workload}"


@dataclass(frozen=True)
class Comparison:
    """Workloads in sweep order, and which dimensions vary (table columns) or do not (subtitle)."""

    workloads: tuple[Workload, ...]
    varying: tuple[str, ...]
    constant: dict[str, str]

    @property
    def rows(self) -> list[Row]:
        """Every cell, workload by workload."""
        return [row for workload in self.workloads for row in workload.rows]

    def groups(self) -> dict[str, list[Workload]]:
        """Group label to its workloads by ascending sequence length."""
        groups: dict[str, list[Workload]] = {}
        for workload in self.workloads:
            groups.setdefault(workload.group, []).append(workload)
        return {label: sorted(found, key=lambda w: w.seq_len) for label, found in groups.items()}


def compare(run: RunData) -> Comparison:
    """Arrange the cells of ``run`` into workloads and price each against its workload's baseline."""
    values = {name: [read(c.config) for c in run.cells] for name, read in _DIMENSIONS.items()}
    varying = tuple(name for name, found in values.items() if len(set(found)) > 1)
    constant = {name: found[0] for name, found in values.items() if found and name not in varying}
    labels = _group_labels(run.cells, varying)
    members: dict[str, list[CellSummary]] = {}
    for cell in run.cells:
        members.setdefault(cell.workload, []).append(cell)
    workloads = []
    for cells in members.values():
        rows = [
            Row(
                summary=cell,
                dimensions={name: _DIMENSIONS[name](cell.config) for name in varying},
                seq_len=int(cell.config["seq_len"]),
                pending=run.pending(cell),
                is_reference=cell.policy == run.reference,
            )
            for cell in cells
        ]
        workloads.append(_price(labels[cells[0].cell], rows))
    return Comparison(tuple(workloads), varying, constant)


def frame(comparison: Comparison) -> pd.DataFrame:
    """One row per cell for further analysis: every headline figure, units in the column names."""
    return pd.DataFrame(
        [
            {"cell": row.summary.cell, "policy": row.summary.policy}
            | {name.lower(): read(row.summary.config) for name, read in _DIMENSIONS.items()}
            | {"seq_len": row.seq_len, "status": row.summary.status, "reason": row.summary.reason}
            | {name: getattr(row.summary, name) for name in _SUMMARY_COLUMNS}
            | {
                "rounds_count": len(row.summary.rounds_s),
                "baseline": workload.baseline_policy,
                "step_time_ratio": row.ratio and row.ratio.estimate,
                "step_time_ratio_low": row.ratio and row.ratio.low,
                "step_time_ratio_high": row.ratio and row.ratio.high,
            }
            for workload in comparison.workloads
            for row in workload.rows
        ]
    )


def _price(group: str, rows: Sequence[Row]) -> Workload:
    baseline = _fastest(_best_paired(rows), lambda c: c.step_time_s)
    kind = "time" if baseline else ""
    if baseline is None:
        baseline = _fastest(rows, lambda c: c.executed_flops)
        kind = "flops" if baseline else ""
    reference = next((row for row in rows if row.is_reference), None)
    priced = [_priced(row, baseline, reference, kind) for row in rows]
    candidates = [
        (i, float(row.summary.peak_bytes or 0), row.cost)
        for i, row in enumerate(priced)
        if row.usable and row.cost is not None
    ]
    for found in pareto_front([(peak, cost) for _, peak, cost in candidates]):
        index = candidates[found][0]
        priced[index] = replace(priced[index], on_front=True)
    return Workload(group, rows[0].seq_len, tuple(priced), baseline, kind)


def _best_paired(rows: Sequence[Row]) -> list[Row]:
    """Of the timed rows those that may be the baseline: the reference, unless only others have pairs."""
    timed = [row for row in rows if row.summary.rounds_s]
    pairs = [
        sum(comparable(row.summary, other.summary) for other in timed if other is not row) for row in timed
    ]
    healthy = [n for n, row in zip(pairs, timed, strict=True) if row.summary.status in ("ok", "noop")]
    most = max(healthy, default=0)
    return [row for n, row in zip(pairs, timed, strict=True) if n == most or (row.is_reference and n > 0)]


def _fastest(rows: Iterable[Row], cost: Callable[[CellSummary], float | None]) -> Row | None:
    known = [(cost(row.summary) or math.inf, row) for row in rows]
    healthy = [p for p in known if p[0] < math.inf and p[1].summary.status in ("ok", "noop")]
    references = [row for value, row in known if row.is_reference and value < math.inf]
    if references:
        return references[0]
    return min(healthy, key=lambda p: p[0])[1] if healthy else None


def _priced(row: Row, baseline: Row | None, reference: Row | None, kind: str) -> Row:
    ratio = cost = peak_ratio = None
    if baseline is not None and kind == "time":
        ratio = step_time_ratio(row.summary, baseline.summary)
        cost = ratio.estimate if ratio else None
    elif baseline is not None and row.summary.executed_flops and baseline.summary.executed_flops:
        cost = row.summary.executed_flops / baseline.summary.executed_flops
    if reference is not None and row.summary.peak_bytes and reference.summary.peak_bytes:
        peak_ratio = row.summary.peak_bytes / reference.summary.peak_bytes
    return replace(row, ratio=ratio, cost=cost, peak_ratio=peak_ratio)


def _group_labels(cells: Sequence[CellSummary], varying: Sequence[str]) -> dict[str, str]:
    """Cell id to the label of its group, told apart by further settings where names coincide."""
    keys = {cell.cell: _group_key(cell.config) for cell in cells}
    plain = {
        cell.cell: ", ".join(_LABELLED.get(n, "") + _DIMENSIONS[n](cell.config) for n in varying)
        for cell in cells
    }
    sharing: dict[str, set[str]] = {}
    for cell in cells:
        sharing.setdefault(plain[cell.cell], set()).add(canonical(keys[cell.cell]))
    labels = {}
    for cell in cells:
        label, flat = plain[cell.cell], keys[cell.cell]
        if len(sharing[label]) > 1:
            peers = [keys[c.cell] for c in cells if plain[c.cell] == label]
            differing = [k for k in flat if len({str(p.get(k)) for p in peers}) > 1]
            label = ", ".join(filter(None, [label, *(f"{k}={flat[k]}" for k in differing)]))
        labels[cell.cell] = label
    return labels


def _group_key(config: dict[str, Any]) -> dict[str, Any]:
    """A workload without its length, flattened; a model may be built for exactly that length."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if name in ("policy", "seq_len"):
            continue
        nested = value if isinstance(value, dict) else {"": value}
        flat.update({f"{name}.{key}".rstrip("."): v for key, v in nested.items()})
    return {k: v for k, v in flat.items() if k not in ("model.max_seq_len", "model.source")}

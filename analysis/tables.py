"""The report's tables: every cell as the text people read, the value it sorts by, and its meaning."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.answer import Answer, cost_text
from analysis.compare import Comparison, Row, Workload
from analysis.detail import Tensor, gradients, phase_peaks, top_tensors
from analysis.statistics import spread_of
from analysis.style import STATUS_WORDS, ByteUnit, byte_unit
from analysis.views import NoiseView
from suite.paired import show_change, step_time_logs
from suite.summary import CellSummary
from suite.units import show_bytes, show_count, show_seconds


@dataclass(frozen=True)
class Entry:
    """One table cell. ``sort``: number or text, None sorts last. ``note`` is set smaller below it."""

    text: str
    sort: float | str | None = None
    style: str = ""
    note: str = ""


@dataclass(frozen=True)
class Line:
    """One table row; ``status`` is a word of suite.config.schema.STATUSES or ``not measured``."""

    status: str
    tags: tuple[str, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Table:
    """Column heads with their style (``num`` aligns right) and rows; the first entry heads its row."""

    heads: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]


def verdicts(comparison: Comparison, reference: str) -> Table:
    """Policy by workload: memory, time, arithmetic, correctness and status of every cell."""
    rows = comparison.rows
    unit = byte_unit([row.summary.peak_bytes for row in rows])
    rated = any(row.summary.mfu_ratio is not None for row in rows)
    heads = [("Policy", "")]
    heads += [(name, "") for name in comparison.varying]
    heads += [
        ("Tokens", "num"),
        ("Status", ""),
        (f"Peak, {unit.name}", "num"),
        (f"Peak vs {reference}", "num"),
        (f"Saved, {unit.name}", "num"),
        ("Step time", "num"),
        (f"Step time vs {reference} [95 % interval]", "num"),
        ("Tokens/s", "num"),
        *([("MFU", "num"), ("HFU", "num")] if rated else []),
        ("Recomputed, FLOP (of model's)", "num"),
        ("Gradients", ""),
        ("Peak in", ""),
    ]
    lines = []
    for workload in comparison.workloads:
        lines += [_verdict(row, workload, reference, unit, rated) for row in workload.rows]
    return Table(tuple(heads), tuple(lines))


def _verdict(row: Row, workload: Workload, reference: str, unit: ByteUnit, rated: bool) -> Line:
    s = row.summary
    found = gradients(s.parity)
    pending = f"not yet: {row.pending}" if row.pending else ""
    unproven = s.status == "ok" and not s.proven and "parity" not in pending
    proof = "predicted, not measured" if s.predicted else "gradients not compared" if unproven else ""
    why = "; ".join(filter(None, (s.reason, pending, proof)))
    word = STATUS_WORDS.get(s.status, s.status)
    if s.predicted:
        word = f"{'fits' if s.status == 'ok' else word} (predicted)"
    entries = [
        Entry(s.policy, s.policy),
        *(Entry(value, value) for value in row.dimensions.values()),
        Entry(f"{row.seq_len:,}", row.seq_len, "num"),
        Entry(word, s.status, f"status {_slug(s.status)}", why),
        Entry(unit.text(s.peak_bytes), s.peak_bytes, "num"),
        Entry(_change(row.peak_ratio, row.is_reference), row.peak_ratio, "num"),
        Entry(unit.text(s.saved_bytes), s.saved_bytes, "num"),
        Entry(show_seconds(s.step_time_s), s.step_time_s, "num"),
        _ratio(row, workload, reference),
        Entry("-" if s.tokens_per_s is None else f"{s.tokens_per_s:,.0f}", s.tokens_per_s, "num"),
    ]
    if rated:
        entries += [Entry(_percent(r), r, "num") for r in (s.mfu_ratio, s.hfu_ratio)]
    entries += [
        Entry(_recomputed(s), s.recomputed_flops, "num"),
        Entry(found.text, found.text, f"gradients {found.judgement}", found.largest),
        Entry(s.peak_phase or "-", s.peak_phase),
    ]
    tags = [name for name, yes in (("reference", row.is_reference), ("frontier", row.on_front)) if yes]
    return Line(s.status, tuple(tags), tuple(entries))


def _ratio(row: Row, workload: Workload, reference: str) -> Entry:
    baseline = workload.baseline_policy
    if row.ratio is None:
        apart = f"no round in one session with {baseline}" if row.summary.rounds_s and baseline else ""
        return Entry("-", None, "num", apart)
    other = "" if baseline == reference else f"vs {baseline}"
    if workload.baseline is not None and row.summary.cell == workload.baseline.summary.cell:
        return Entry("reference" if not other else "fastest here", 1.0, "num")
    return Entry(row.ratio.text, row.ratio.estimate, "num", other)


def answers(found: Sequence[Answer]) -> Table:
    """Per workload the policy to train with and the next best one."""
    lines = []
    for each in found:
        entries = [Entry(each.workload.label)]
        for row, nobody in ((each.best, "none"), (each.fallback, "-")):
            peak = row.summary.peak_bytes if row else None
            entries.append(Entry(row.summary.policy if row else nobody))
            entries.append(Entry(show_bytes(peak), peak, "num"))
            entries.append(Entry(cost_text(row, each.workload) if row else "-", style="words"))
        lines.append(Line("ok" if each.best else "oom", (), tuple(entries)))
    heads = (("Workload", ""), ("Policy", ""), ("Peak", "num"), ("Cost", ""))
    return Table((*heads, ("Next best", ""), ("Its peak", "num"), ("Its cost", "")), tuple(lines))


@dataclass(frozen=True)
class Peak:
    """Why one cell's peak is where it is."""

    label: str
    where: str
    phases: str
    tensors: tuple[Tensor, ...]


def peaks(comparison: Comparison) -> dict[str, list[Peak]]:
    """By workload, every cell that recorded the tensors alive at its peak, in table order."""
    found: dict[str, list[Peak]] = {}
    for workload in comparison.workloads:
        for row in workload.rows:
            memory = row.summary.memory
            tensors = top_tensors(memory)
            if memory is None or not tensors:
                continue
            place = ("peak_phase", "peak_operator", "peak_module")
            where = [str(memory.detail.get(name) or "") for name in place]
            phases = ", ".join(f"{name} {show_bytes(size)}" for name, size in phase_peaks(memory).items())
            label = f"{row.summary.policy}: {show_bytes(row.summary.peak_bytes)}"
            peak = Peak(label, " / ".join(filter(None, where)), phases, tuple(tensors))
            found.setdefault(workload.label, []).append(peak)
    return found


def noise(views: Sequence[NoiseView]) -> Table:
    """How much step times vary between rounds, alone and as paired ratios."""
    lines = []
    for view in views:
        baseline = view.workload.baseline
        if baseline is None or len(baseline.summary.rounds_s) < 2:
            continue
        rounds = baseline.summary.rounds_s
        alone = spread_of([math.log(seconds) for seconds in rounds.values()])
        others = [row for row in view.rows if row.summary.cell != baseline.summary.cell]
        spreads = sorted(
            spread
            for row in others
            if (spread := spread_of(step_time_logs(row.summary, baseline.summary))) is not None
        )
        paired = spreads[len(spreads) // 2] if spreads else None
        entries = (
            Entry(view.workload.label),
            Entry(baseline.summary.policy),
            Entry(str(len(rounds)), style="num"),
            Entry(show_seconds(baseline.summary.step_time_s), style="num"),
            Entry(show_change(max(rounds.values()) / min(rounds.values())), style="num"),
            Entry(_percent(alone), style="num"),
            Entry(_percent(paired), style="num"),
        )
        lines.append(Line("ok", (), entries))
    heads = (
        ("Workload", ""),
        ("Baseline", ""),
        ("Rounds", "num"),
        ("Median step", "num"),
        ("Slowest vs fastest round", "num"),
        ("Spread of the baseline (sd)", "num"),
        ("Spread of paired ratios (sd, median policy)", "num"),
    )
    return Table(heads, tuple(lines))


def _recomputed(summary: CellSummary) -> str:
    count = show_count(summary.recomputed_flops)
    if summary.recomputed_flops is None or not summary.model_flops:
        return count
    return f"{count} ({_percent(summary.recomputed_flops / summary.model_flops)})"


def _change(ratio: float | None, is_reference: bool) -> str:
    if is_reference:
        return "reference"
    return "-" if ratio is None else show_change(ratio)


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio * 100:.1f} %"


def _slug(status: str) -> str:
    return status.replace(" ", "-")

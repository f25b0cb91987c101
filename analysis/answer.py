"""The one sentence a reader came for: which policy to train with, at what memory and what cost."""

from dataclasses import dataclass

from analysis.compare import Row, Workload
from analysis.detail import gradients
from analysis.statistics import overlap
from suite.paired import show_change
from suite.units import show_apart, show_bytes, show_seconds


@dataclass(frozen=True)
class Answer:
    """The verdict on one workload. ``best`` is None where nothing fits; ``sentence`` is plain text."""

    workload: Workload
    best: Row | None
    fallback: Row | None
    sentence: str


def answer(workload: Workload, budget_bytes: int | None) -> Answer:
    """Choose for ``workload``.

    With a budget: the least costly cell that fits it, and the next one as fallback. The reference
    wins where it fits, unless another policy is faster beyond its interval: it is the simplest.
    Without a budget: the lowest peak, with the least costly of the other policies as fallback.
    """
    usable = [row for row in workload.rows if row.usable]
    if not usable:
        return Answer(workload, None, None, _nothing(workload, budget_bytes))
    if budget_bytes is None:
        best = min(usable, key=lambda row: (row.summary.peak_bytes, _cost_key(row)))
        rest = [row for row in usable if row is not best and row.on_front and not row.is_reference]
        fallback = min(rest, key=_cost_key, default=None)
        return Answer(workload, best, fallback, _without_budget(workload, best, fallback))
    ranked = sorted(usable, key=_cost_key)
    references = [row for row in ranked if row.is_reference and row.cost is not None]
    faster = [row for row in ranked if row.ratio and row.ratio.high is not None and row.ratio.high < 1]
    if references and not faster:
        ranked.remove(references[0])
        ranked.insert(0, references[0])
    fallback = ranked[1] if len(ranked) > 1 else None
    return Answer(workload, ranked[0], fallback, _with_budget(workload, ranked[0], fallback, budget_bytes))


def cost_text(row: Row, workload: Workload) -> str:
    """What a cell costs in words: ``+7.2 % [5.9, 8.5] step time against none``."""
    if row.cost is None and row.summary.step_time_s is not None:
        return f"step time not measured beside {workload.baseline_policy}"
    if row.cost is None:
        return "no time measured"
    if workload.cost_kind == "flops":
        if row is workload.baseline or row.summary.cell == _baseline_cell(workload):
            return "no time measured"
        return (
            f"{show_change(row.cost)} executed FLOPs against {workload.baseline_policy} (no time measured)"
        )
    if row.summary.cell == _baseline_cell(workload):
        return f"step time {show_seconds(row.summary.step_time_s)}"
    text = row.ratio.text if row.ratio else show_change(row.cost)
    return f"{text} step time against {workload.baseline_policy}"


def _baseline_cell(workload: Workload) -> str:
    return workload.baseline.summary.cell if workload.baseline else ""


def _cost_key(row: Row) -> tuple[float, float, float]:
    summary = row.summary
    far = float("inf")
    cost = far if row.cost is None else row.cost
    recomputed = far if summary.recomputed_flops is None else summary.recomputed_flops
    return cost, recomputed, summary.peak_bytes or far


def _with_budget(workload: Workload, best: Row, fallback: Row | None, budget_bytes: int) -> str:
    at, budget = _at(workload), show_bytes(budget_bytes)
    if best.is_reference:
        head = f"{at} {best.summary.policy} itself fits {budget}, so nothing needs recomputing"
    else:
        head = f"{at} the cheapest policy that fits {budget} is {best.summary.policy}"
    parts = [f"{head}: peak {show_bytes(best.summary.peak_bytes)}, {cost_text(best, workload)}"]
    found = gradients(best.summary.parity)
    if found.judgement in ("right", "near"):
        parts.append(f"gradients {found.text}")
    sentence = ", ".join(parts) + _unproven(best) + "."
    reference = next((row for row in workload.rows if row.is_reference), None)
    if reference is not None and reference.summary.status == "oom":
        sentence += f" The reference, {reference.summary.policy}, does not fit{_because(reference)}."
    if fallback is None:
        return f"{sentence} No other policy measured fits."
    text = (
        f"{show_bytes(fallback.summary.peak_bytes)}, {cost_text(fallback, workload)}{_unproven(fallback)}"
    )
    sentence += f" Next best: {fallback.summary.policy} ({text})."
    tied = best.ratio and fallback.ratio and overlap(best.ratio, fallback.ratio)
    timed = workload.cost_kind == "time" and _baseline_cell(workload) != best.summary.cell
    return (
        f"{sentence} Their intervals overlap: either may be the faster one." if tied and timed else sentence
    )


def _without_budget(workload: Workload, best: Row, fallback: Row | None) -> str:
    change = f" ({show_change(best.peak_ratio)} against the reference)" if best.peak_ratio else ""
    if best.is_reference:
        change = ""
    sentence = (
        f"{_at(workload)} {best.summary.policy} has the lowest peak, {show_bytes(best.summary.peak_bytes)}"
        f"{change}: {cost_text(best, workload)}{_unproven(best)}. No memory budget was set."
    )
    if fallback is None:
        return sentence
    text = (
        f"{show_bytes(fallback.summary.peak_bytes)}, {cost_text(fallback, workload)}{_unproven(fallback)}"
    )
    return f"{sentence} Cheapest on the frontier: {fallback.summary.policy} ({text})."


def _unproven(row: Row) -> str:
    if row.summary.predicted:
        return ", predicted and not measured"
    return "" if row.summary.proven else ", gradients not compared"


def _nothing(workload: Workload, budget_bytes: int | None) -> str:
    known = [row for row in workload.rows if row.summary.peak_bytes and row.summary.status == "oom"]
    if known and budget_bytes is not None:
        low = min(known, key=lambda row: row.summary.peak_bytes or 0)
        peak, budget = show_apart(low.summary.peak_bytes or 0, budget_bytes)
        return (
            f"{_at(workload)} no policy measured fits {budget}; "
            f"the lowest peak is {peak}, with {low.summary.policy}."
        )
    statuses = sorted({row.summary.status for row in workload.rows})
    return f"{_at(workload)} there is no healthy cell to choose from ({', '.join(statuses)})."


def _because(row: Row) -> str:
    return f" ({show_bytes(row.summary.peak_bytes)})" if row.summary.peak_bytes else ""


def _at(workload: Workload) -> str:
    return f"At {workload.seq_len:,} tokens" + (f" ({workload.group})" if workload.group else "")

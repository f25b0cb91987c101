"""The answer as rows: for the terminal, for a page and as JSON."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from analysis.fit.ask import Fit, Outcome
from analysis.fit.point import OVER, REFUSED, Point
from analysis.fit.words import lead_of, note_of
from suite.cell import workload_label
from suite.units import show_bytes, show_seconds

# A head that starts with > is of numbers.
HEADS = (
    "policy",
    ">{vary}",
    "verdict",
    ">peak",
    ">on the device",
    ">step time",
    ">tokens/s",
    ">/ none",
    "note",
)
_FIGURES = (
    "peak_bytes",
    "static_bytes",
    "device_used_bytes",
    "least_device_used_bytes",
    "step_time_s",
    "tokens_per_s",
)


@dataclass(frozen=True)
class Assumption:
    """What the predictor takes for granted."""

    name: str
    value: str
    source: str


def heads_of(fit: Fit) -> list[str]:
    """The table's heads."""
    return [head.format(vary=f"largest {fit.question.vary}") for head in HEADS]


def lines_of(fit: Fit) -> list[list[str]]:
    """One line per policy: those that fit, the largest value first; then the others."""
    return [_line(outcome, fit) for outcome in ordered(fit)]


def ordered(fit: Fit) -> list[Outcome]:
    """Those that fit, the largest value first; those that do not; those that are refused."""
    rest = [outcome for outcome in fit.outcomes if outcome.best is None]
    return [*fit.fitting, *sorted(rest, key=lambda outcome: bool(outcome.refused))]


def workload_of_fit(fit: Fit) -> str:
    """The workload without the axis that varies: ``llama3_8b b=1 bf16-mixed ... on h100_80gb``."""
    question = fit.question
    dropped = {"seq_len": "s=", "batch_size": "b="}.get(question.vary, "\0")
    label = workload_label(question.cell.resolved).split()
    return " ".join(
        [*(word for word in label if not word.startswith(dropped)), "on", question.hardware.name]
    )


def assumptions_of(fit: Fit) -> list[Assumption]:
    """Those of the first answer, which are the same for every policy; rates one by one."""
    details = (p.detail for o in fit.outcomes for p in o.points if p.detail.get("assumptions"))
    found: dict[str, Any] = next(details, {}).get("assumptions", {})
    listed = []
    for name, told in found.items():
        value, source = told.get("value"), str(told.get("source", ""))
        if not isinstance(value, dict):
            listed.append(Assumption(name, _plain(value), source))
            continue
        for part, one in value.items():
            own = "given" if part in fit.question.assumptions else source
            listed.append(Assumption(part, _plain(one), own))
    return listed


def json_of(fit: Fit) -> dict[str, Any]:
    """Everything that was asked and answered, in plain JSON types."""
    question = fit.question
    workload = {k: v for k, v in question.cell.resolved.items() if k != "policy"}
    return {
        "lead": lead_of(fit),
        "fits": bool(fit.fitting),
        "workload": workload,
        "hardware": question.hardware.name,
        "capacity_bytes": question.limits.capacity_bytes,
        "budget_bytes": question.limits.budget_bytes,
        "vary": question.vary,
        "step": question.step,
        "most": question.most,
        "points_asked": fit.asked,
        "policies": [_outcome(outcome, fit) for outcome in ordered(fit)],
        "assumptions": [dataclasses.asdict(a) for a in assumptions_of(fit)],
    }


def _outcome(outcome: Outcome, fit: Fit) -> dict[str, Any]:
    best, beyond = outcome.best, outcome.beyond
    return {
        "policy": outcome.label,
        "config": {"family": outcome.policy.family, "options": outcome.policy.options},
        "value": best.value if best else None,
        "verdict": verdict_of(outcome),
        "figures": {name: best.figures[name] for name in _FIGURES if name in best.figures} if best else {},
        "peak_phase": best.detail.get("peak_phase") if best else None,
        "step_ratio": outcome.step_ratio,
        "beyond": beyond.value if beyond else None,
        "monotone": not outcome.turned,
        "not_monotone_between": [list(pair) for pair in outcome.turned],
        "note": note_of(outcome, fit),
        "points": [_point(point) for point in outcome.points],
    }


def _point(point: Point) -> dict[str, Any]:
    told = {name: point.figures[name] for name in _FIGURES if name in point.figures}
    reason = {"reason": point.reason} if point.reason else {}
    return {
        "value": point.value,
        "verdict": point.verdict,
        "spare_bytes": point.spare_bytes,
        **told,
        **reason,
    }


def verdict_of(outcome: Outcome) -> str:
    """``fits``, ``tight``, ``does not fit`` or ``refused``."""
    if outcome.refused:
        return REFUSED
    return outcome.best.verdict if outcome.best else OVER


def _line(outcome: Outcome, fit: Fit) -> list[str]:
    shown = outcome.best or outcome.lowest
    figures = shown.figures if shown else {}
    tokens, ratio = figures.get("tokens_per_s"), outcome.step_ratio
    used = figures.get("device_used_bytes")
    least = figures.get("least_device_used_bytes")
    device = f"{show_bytes(least)} to {show_bytes(used)}" if used is not None else "-"
    return [
        outcome.label,
        f"{outcome.best.value:,}" if outcome.best else "-",
        verdict_of(outcome),
        show_bytes(shown.peak_bytes) if shown else "-",
        device,
        show_seconds(figures.get("step_time_s")),
        f"{tokens:,.0f}" if tokens is not None else "-",
        f"{ratio:.3f}" if ratio is not None else "-",
        note_of(outcome, fit),
    ]


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)

"""The answer in sentences."""

from typing import Any

from analysis.fit.ask import Fit, Outcome
from analysis.fit.point import TIGHT, Point
from analysis.fit.question import Limits
from suite.units import show_bytes

_AXIS_WORDS = {"seq_len": "tokens", "batch_size": "sequences", "n_layers": "blocks"}
_MOST_TENSORS = 3
_MOST_KINDS = 4
# Beyond this share of the limit, what no policy changes is worth saying.
_DOMINANT = 0.5


def amount(vary: str, value: int) -> str:
    """``8,192 tokens``, ``4 sequences`` or ``1 block``."""
    word = _AXIS_WORDS[vary]
    return f"{value:,} {word.removesuffix('s') if value == 1 else word}"


def lead_of(fit: Fit) -> str:
    """The answer in one sentence or two."""
    if not fit.fitting:
        return nothing_fits(fit)
    first, vary = fit.fitting[0], fit.question.vary
    assert first.best is not None
    equal = [o for o in fit.fitting if o.best is not None and o.best.value == first.best.value]
    words = f"{first.label} reaches {amount(vary, first.best.value)} within {limit_of(fit.question.limits)}"
    if len(equal) > 1:
        words += f", the fastest of {len(equal)} that do"
    if first.best.verdict == TIGHT:
        words += " (tight: with expandable segments)"
    words += "."
    none = next((o for o in fit.outcomes if o.policy.family == "none"), None)
    if none is not None and none is not first and not none.refused:
        reach = f"reaches {none.best.value:,}" if none.best else "does not fit at all"
        words += f" Without recomputation it {reach}."
    return words


def limit_of(limits: Limits) -> str:
    """``60.0 GiB of a budget``, or the card's memory."""
    if limits.budget_bytes is not None:
        return f"a budget of {show_bytes(limits.budget_bytes)}"
    return f"the card's {show_bytes(limits.capacity_bytes)}"


def nothing_fits(fit: Fit) -> str:
    """Which policy comes nearest at the smallest value, where its peak is and what is in it."""
    question = fit.question
    candidates = [(o, o.lowest) for o in fit.outcomes if o.lowest is not None]
    if not candidates:
        return "No policy can be predicted on this workload: see the reasons."
    outcome, point = max(candidates, key=lambda pair: _spare(pair[1]))
    assert point is not None
    needs = show_bytes(point.peak_bytes)
    least = point.figures.get("least_device_used_bytes")
    if question.limits.capacity_bytes is not None and least is not None:
        needs += f" ({show_bytes(least)} with the allocator's segments and the context)"
    words = (
        f"Nothing fits {limit_of(question.limits)}, not even {amount(question.vary, point.value)}. "
        f"The tightest is {outcome.label}: its peak is {needs}"
    )
    phase = point.detail.get("peak_phase")
    words += f" in the {phase} phase" if phase else ""
    words += f", {show_bytes(-_spare(point))} too much."
    return " ".join([words, *_content(point, question.limits)])


def _content(point: Point, limits: Limits) -> list[str]:
    kinds: dict[str, Any] = point.detail.get("peak_composition") or {}
    most = sorted(kinds.items(), key=lambda pair: -pair[1])[:_MOST_KINDS]
    found = []
    if most:
        parts = (f"{show_bytes(size)} of {kind.replace('_', ' ')}" for kind, size in most if size)
        found.append(f"It holds {', '.join(parts)}.")
    tensors = point.detail.get("top_tensors") or []
    if tensors:
        found.append(f"Its largest tensors: {'; '.join(_tensor(t) for t in tensors[:_MOST_TENSORS])}.")
    static = point.figures.get("static_bytes")
    if static is not None and static > _DOMINANT * _limit(limits):
        found.append(
            f"{show_bytes(static)} are there whatever the policy: spread them over more devices "
            "(--parallel zero=3,dp=8), or take a smaller precision or model."
        )
    return found


def _tensor(tensor: dict[str, Any]) -> str:
    shape = " x ".join(map(str, tensor.get("shape", ())))
    name = tensor.get("name") or tensor.get("operator") or "unnamed"
    kind = str(tensor.get("kind", "")).replace("_", " ")
    return f"{name} ({kind}, {shape} {tensor.get('dtype', '')}, {show_bytes(tensor.get('bytes'))})"


def _limit(limits: Limits) -> int:
    return limits.budget_bytes or limits.capacity_bytes or 0


def _spare(point: Point | None) -> int:
    return (point.spare_bytes or 0) if point is not None else 0


def note_of(outcome: Outcome, fit: Fit) -> str:
    """What a row's answer leaves to say."""
    if outcome.refused:
        return outcome.refused
    if outcome.best is None:
        point = outcome.lowest
        return f"{show_bytes(-_spare(point))} too much at {point.value:,}" if point else "not predicted"
    notes = []
    if outcome.best.verdict == TIGHT:
        sure = max((p.value for p in outcome.points if p.verdict == "fits"), default=None)
        notes.append(
            "fits with expandable segments" + (f"; without them at least {sure:,} does" if sure else "")
        )
    if outcome.beyond is None:
        notes.append(f"no limit met up to {fit.question.bounded_by}")
    elif outcome.beyond.reason:
        notes.append(f"{outcome.beyond.value:,} is refused: {outcome.beyond.reason}")
    if outcome.turned:
        a, b = outcome.turned[0]
        notes.append(
            f"not monotone between {a:,} and {b:,}; the answer is the largest value below the first that "
            "does not fit"
        )
    return "; ".join(notes)

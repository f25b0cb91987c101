"""Claims (b), (c) and (f): what recomputation costs in arithmetic and in time."""

from collections.abc import Sequence

from analysis.claims.finding import (
    HOLDS,
    IN_PART,
    NOT_HERE,
    NOT_MEASURED,
    TOO_NOISY,
    Judgement,
    by_policy,
    extra_flops,
    groups,
    percent,
    shape,
    step_time,
)
from suite.summary import CellSummary
from suite.units import show_bytes

_WITHOUT_EARLY_STOP = "full(early_stop=false)"
# Policies that rebuild only what is cheap, dearest last.
_CHEAP = ("rebuild", "discard(targets=norm+act)", "ops(save=mm+attn-down)", "ops(save=mm-down)")


def judge_one_forward(cells: Sequence[CellSummary]) -> Judgement:
    """Extra FLOPs of ``full``, with early stop and without, for each kind of block measured."""
    told, exact, less = [], False, False
    for group in groups(cells):
        found = by_policy(group)
        with_stop = extra_flops(found["full"]) if "full" in found else None
        whole = extra_flops(found[_WITHOUT_EARLY_STOP]) if _WITHOUT_EARLY_STOP in found else None
        if with_stop is None or whole is None:
            continue
        model = group[0].config["model"]
        block = f"{model['family']} (d_ff {model['d_ff'] / model['d_model']:.1f} d_model"
        block += f", dropout {model['dropout']:g})" if model["dropout"] else ")"
        told.append(f"{block}: {percent(with_stop)} with early stop, {percent(whole)} without")
        exact |= abs(whole - 1 / 3) < 0.01
        less |= with_stop < 0.32
    if not told:
        return Judgement(NOT_MEASURED, why=f"needs full and {_WITHOUT_EARLY_STOP} with FLOPs")
    verdict = IN_PART if exact and less else HOLDS if exact else NOT_HERE
    return Judgement(
        verdict,
        "; ".join(told),
        "a step is three forwards, so one more is a third. Early stop leaves out the last product, whose "
        "output backward never reads: 22 % for a GELU MLP of 4 d, 26 % for SwiGLU of 8/3 d, when attention "
        "and head are small. Dropout after that product must draw its mask again: then it is 33 %",
    )


_SLOWER = (1.30, 1.40)


def judge_slowdown(cells: Sequence[CellSummary]) -> Judgement:
    """Paired step time of ``full`` against ``none``: is it 30 to 40 % more?

    The claim holds where the interval meets that range, unless it reaches beyond both its ends: then more
    rounds on a quieter machine are needed to tell.
    """
    told, verdicts = [], set()
    for group in groups(cells):
        found = by_policy(group)
        ratio = step_time(found["full"], found["none"]) if found.keys() >= {"full", "none"} else None
        if ratio is None or ratio.low is None or ratio.high is None:
            continue
        told.append(f"{shape(group[0])}: {ratio.text}")
        if ratio.low < _SLOWER[0] and ratio.high > _SLOWER[1]:
            verdicts.add(TOO_NOISY)
        else:
            verdicts.add(HOLDS if ratio.low <= _SLOWER[1] and ratio.high >= _SLOWER[0] else NOT_HERE)
    if not told:
        return Judgement(NOT_MEASURED, why="needs two rounds or more of full and none at one workload")
    clear = verdicts - {TOO_NOISY}
    verdict = TOO_NOISY if not clear else clear.pop() if len(clear) == 1 else IN_PART
    return Judgement(
        verdict,
        "; ".join(told),
        "the replay costs its FLOPs, at most a third of the step's, and beyond them something per block, "
        "which shows where blocks are small",
    )


def judge_cheap(cells: Sequence[CellSummary]) -> Judgement:
    """Policies that keep every product: no FLOP again, and some of the memory."""
    told, clean = [], True
    for group in groups(cells):
        found = by_policy(group)
        none, kept = found.get("none"), [found[p] for p in _CHEAP if p in found]
        if none is None or not none.saved_bytes:
            continue
        for cell in kept:
            if cell.saved_bytes is None or cell.recomputed_flops is None:
                continue
            ratio = step_time(cell, none)
            cost = f", step time {ratio.text}" if ratio else ""
            told.append(
                f"{cell.policy}: saves {show_bytes(none.saved_bytes - cell.saved_bytes)} of "
                f"{show_bytes(none.saved_bytes)} ({percent(1 - cell.saved_bytes / none.saved_bytes, 0)}), "
                f"recomputes {percent(cell.recomputed_flops / (none.model_flops or 1))} of the FLOPs{cost}"
            )
            clean &= cell.recomputed_flops == 0 and cell.saved_bytes < none.saved_bytes
    if not told:
        return Judgement(NOT_MEASURED, why=f"needs none and one of {', '.join(_CHEAP)}")
    return Judgement(
        HOLDS if clean else NOT_HERE,
        "; ".join(told),
        "no product runs again; what is rebuilt is memory-bound, so its cost is bandwidth and bookkeeping",
    )

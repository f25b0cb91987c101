"""Claims (d), (e) and (g): how much memory recomputation saves, and what that buys."""

from collections.abc import Sequence

from analysis.claims.finding import (
    HOLDS,
    IN_PART,
    NOT_HERE,
    NOT_MEASURED,
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

_CORE = "modules(targets=core_attn)"
_LEAST_LENGTHS = 4
# "Most of the saving" and "a few percent" of the step's FLOPs.
_MOST, _FEW = 0.5, 0.05


def judge_order_of_magnitude(cells: Sequence[CellSummary]) -> Judgement:
    """Peak of activations of ``none`` over that of ``full``, the largest ratio of any workload."""
    best: tuple[float, str, float] | None = None
    for group in groups(cells):
        found = by_policy(group)
        none, full = found.get("none"), found.get("full")
        if none is None or full is None or not none.activation_bytes or not full.activation_bytes:
            continue
        ratio = none.activation_bytes / full.activation_bytes
        blocks = [
            cell.memory.figures.get("saved_in_blocks_bytes", 0.0) for cell in (none, full) if cell.memory
        ]
        kept = blocks[0] / blocks[1] if len(blocks) == 2 and blocks[1] else 0.0
        text = (
            f"{shape(none)}: {show_bytes(none.activation_bytes)} to {show_bytes(full.activation_bytes)}, "
            f"{ratio:.1f} times less at the peak; kept in blocks: {kept:.1f} times less"
        )
        if best is None or ratio > best[0]:
            best = ratio, text, kept
    if best is None:
        return Judgement(NOT_MEASURED, why="needs none and full at one workload")
    ratio, text, kept = best
    verdict = HOLDS if ratio >= 10 else IN_PART if kept >= 10 else NOT_HERE
    return Judgement(
        verdict,
        text,
        "what blocks keep falls by A / u whatever the depth; the peak also holds one rebuilt block, which "
        "deeper models spread thinner, and the head, which recomputation does not touch",
    )


def judge_selective(cells: Sequence[CellSummary]) -> Judgement:
    """Recomputing the core of attention: share of what ``full`` saves, and of what it costs, by kernel."""
    told, good = [], {}
    for group in groups(cells):
        found = by_policy(group)
        if not found.keys() >= {"none", "full", _CORE}:
            continue
        none, full, core = found["none"], found["full"], found[_CORE]
        if not (none.saved_bytes and full.saved_bytes and core.saved_bytes):
            continue
        share = (none.saved_bytes - core.saved_bytes) / (none.saved_bytes - full.saved_bytes)
        work, whole = extra_flops(core), extra_flops(full)
        less = f"{none.saved_bytes / core.saved_bytes:.1f} times less kept"
        text = f"{shape(none)}: {percent(share, 0)} of the saving ({less})"
        if work is not None and whole:
            text += f" for {percent(work)} more FLOPs (full: {percent(whole)})"
        ratio, slow = step_time(core, none), step_time(full, none)
        if ratio and slow:
            text += f", step time {ratio.text} (full: {slow.text})"
        told.append(text)
        few = work is not None and work <= _FEW
        good[str(none.config["attention"])] = share > _MOST, few
    if not told:
        return Judgement(NOT_MEASURED, why=f"needs none, full and {_CORE} at one workload")
    most, few = good.get("eager", (False, False))
    fused = [share for kernel, (share, _) in good.items() if kernel != "eager"]
    verdict = HOLDS if most and few else IN_PART if most else NOT_HERE
    rest = " A fused kernel keeps no scores, and nothing of that is left to save."
    rest = rest if fused and not any(fused) else ""
    return Judgement(
        verdict,
        "; ".join(told),
        "with eager attention most of the saving is there once 5 a s / h is large against 34; its cost "
        f"against a whole forward falls with the width of the model.{rest} The factor of 5 needs "
        "sequence parallelism as well, which one device does not have.",
    )


def longest(cells: Sequence[CellSummary], budget_bytes: float) -> dict[str, int]:
    """Policy to the longest measured sequence whose peak fits; 0 where none does."""
    found: dict[str, int] = {}
    for cell in cells:
        if cell.peak_bytes is None:
            continue
        fits = int(cell.config["seq_len"]) if cell.peak_bytes <= budget_bytes else 0
        found[cell.policy] = max(found.get(cell.policy, 0), fits)
    return found


def judge_length(cells: Sequence[CellSummary]) -> Judgement:
    """The longest of the measured lengths under each policy, on what ``none`` needs at an early one."""
    candidates = [
        g for g in groups(cells, "seq_len") if len({c.config["seq_len"] for c in g}) >= _LEAST_LENGTHS
    ]
    for group in sorted(candidates, key=len, reverse=True):
        none = {
            int(c.config["seq_len"]): c.peak_bytes for c in group if c.policy == "none" and c.peak_bytes
        }
        if len(none) < _LEAST_LENGTHS:
            continue
        base = sorted(none)[len(none) // 3]
        budget = none[base]
        assert budget is not None
        reached = longest(group, budget)
        told = ", ".join(f"{p} {n:,}" for p, n in sorted(reached.items(), key=lambda item: item[1]))
        gain = max(reached.values()) / base
        limit = max(int(c.config["seq_len"]) for c in group)
        capped = " (the longest measured)" if max(reached.values()) == limit else ""
        return Judgement(
            HOLDS if gain > 1 else NOT_HERE,
            f"on {show_bytes(budget)}: {told} tokens",
            f"the budget is what none needs for {base:,} tokens; the best policy reaches {gain:.1f} times "
            f"as many{capped}. Parameters, optimizer states and the head's logits are in the budget too",
        )
    return Judgement(NOT_MEASURED, why=f"needs {_LEAST_LENGTHS} lengths of one workload, with none")

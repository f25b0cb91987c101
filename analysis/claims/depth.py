"""Claim (a): how activation memory grows with depth."""

from collections.abc import Sequence

import numpy as np

from analysis.claims.finding import (
    HOLDS,
    IN_PART,
    NOT_HERE,
    NOT_MEASURED,
    Judgement,
    groups,
    shape,
)
from suite.summary import CellSummary

LEAST_DEPTHS = 5
# An exponent this near to the claimed one, from depths that are whole squares or not, is that one.
_WITHIN = 0.1
_CLAIMED = {"none": 1.0, "segments(n=sqrt)": 0.5}


def depth_exponents(cells: Sequence[CellSummary]) -> dict[str, tuple[float, list[int]]]:
    """Policy to the exponent p of activation bytes ~ N^p, and the depths N it was fitted over.

    Least squares of the logarithms, over at least five depths; what the head and the embedding keep does
    not depend on the depth and is taken off first.
    """
    points: dict[str, dict[int, float]] = {}
    for cell in cells:
        if cell.memory is None or cell.activation_bytes is None or cell.status == "wrong":
            continue
        outside = cell.memory.figures.get("saved_outside_blocks_bytes", 0.0)
        depth = int(cell.config["model"]["n_layers"])
        points.setdefault(cell.policy, {})[depth] = cell.activation_bytes - outside
    return {
        policy: (float(np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0]), sorted(found))
        for policy, found in points.items()
        if len(found) >= LEAST_DEPTHS and min(found.values()) > 0
    }


def judge_depth(cells: Sequence[CellSummary]) -> Judgement:
    """The fitted exponents of ``none`` and of sqrt(N) segments against 1 and 1/2."""
    for group in groups(cells, "model.n_layers"):
        exponents = depth_exponents(group)
        if not exponents.keys() >= _CLAIMED.keys():
            continue
        depths = exponents["none"][1]
        near = {p: abs(exponents[p][0] - claimed) <= _WITHIN for p, claimed in _CLAIMED.items()}
        told = ", ".join(f"{p} N^{found:.2f}" for p, (found, _) in sorted(exponents.items()))
        verdict = HOLDS if all(near.values()) else IN_PART if any(near.values()) else NOT_HERE
        return Judgement(
            verdict,
            f"{told}, over {len(depths)} depths from {depths[0]} to {depths[-1]}",
            f"peak of activations in {shape(group[0]).split(',')[0]}. A segment's rebuilt blocks weigh A "
            "each and a kept input only u, so fewer, longer segments than sqrt(N) keep less: the best "
            "length is sqrt(N u / A) blocks",
        )
    return Judgement(NOT_MEASURED, why=f"needs none and segments(n=sqrt) at {LEAST_DEPTHS} depths")

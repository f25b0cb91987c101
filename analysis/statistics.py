"""What is told of many figures at once: spread, frontier, overlap. The paired ratio is suite.paired."""

import math
import statistics
from collections.abc import Sequence

from suite.paired import PairedRatio


def spread_of(logs: Sequence[float]) -> float | None:
    """Relative spread: the standard deviation of logarithms; None for fewer than two."""
    return statistics.stdev(logs) if len(logs) > 1 else None


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points that no other point beats in one coordinate without losing in the other.

    Smaller is better in both; the result is ordered by the first coordinate. Equal points all stay.
    """
    order = sorted(range(len(points)), key=lambda i: points[i])
    front: list[int] = []
    best = math.inf
    for i in order:
        tied = bool(front) and points[i] == points[front[-1]]
        if points[i][1] < best or tied:
            front.append(i)
            best = min(best, points[i][1])
    return front


def overlap(a: PairedRatio, b: PairedRatio) -> bool:
    """Whether two intervals share a value; unknown bounds count as shared."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return True
    return a.low <= b.high and b.low <= a.high

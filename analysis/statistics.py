"""How a policy's step time compares with another's, and how sure that is.

A round, one fresh process, is the unit of replication: steps inside a process share its allocator,
its caches and its neighbours, so they are no independent evidence. The rounds of the cells of one
workload are interleaved, so round *r* of the candidate and round *r* of the reference saw the same
machine. With ``d_r = ln(candidate_r / reference_r)`` over the rounds that both have:

* the estimate is the geometric mean ratio, ``exp(mean(d))``;
* the interval is Student's t on ``d``, ``exp(mean(d) ± t(n-1) · sd(d) / sqrt(n))``.

A drift that multiplies both arms of a round by the same factor cancels exactly. One round gives an
estimate and no interval.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class PairedRatio:
    """Geometric mean of candidate / reference over ``rounds`` pairs; no bounds from a single round."""

    estimate: float
    low: float | None
    high: float | None
    rounds: int

    @property
    def text(self) -> str:
        """``+7.2 % [5.9, 8.5]``, or ``+7.2 % (1 round: no interval)``."""
        head = show_change(self.estimate)
        if self.low is None or self.high is None:
            return f"{head} (1 round: no interval)"
        return f"{head} [{_signed(self.low)}, {_signed(self.high)}]"


def show_change(ratio: float) -> str:
    """A ratio as the percentage by which it differs from one: ``+7.2 %``."""
    return f"{_signed(ratio, plus=True)} %"


def _signed(ratio: float, plus: bool = False) -> str:
    # Adding zero turns -0.0 into 0.0: "-0.0 %" would read as a saving.
    percent = round((ratio - 1) * 100, 1) + 0.0
    return f"{percent:{'+' if plus else ''}.1f}".replace("-", "\N{MINUS SIGN}")


def paired_ratio(
    candidate: Mapping[int, float],
    reference: Mapping[int, float],
    confidence: float = CONFIDENCE,
) -> PairedRatio | None:
    """Compare two cells by their rounds; None if they share no round.

    Args:
        candidate: round number to step time in seconds, positive.
        reference: the same for the policy that is compared with.
        confidence: coverage of the t-interval.
    """
    logs = paired_logs(candidate, reference)
    if not logs:
        return None
    center = math.fsum(logs) / len(logs)
    if len(logs) == 1:
        return PairedRatio(math.exp(center), None, None, 1)
    spread = math.sqrt(math.fsum((d - center) ** 2 for d in logs) / (len(logs) - 1))
    half = float(stats.t.ppf((1 + confidence) / 2, len(logs) - 1)) * spread / math.sqrt(len(logs))
    return PairedRatio(math.exp(center), math.exp(center - half), math.exp(center + half), len(logs))


def paired_logs(candidate: Mapping[int, float], reference: Mapping[int, float]) -> list[float]:
    """``ln(candidate / reference)`` of every round that both have, in round order."""
    return [math.log(candidate[r]) - math.log(reference[r]) for r in sorted(candidate.keys() & reference)]


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

"""How a policy's step time compares with another's, and how sure that is: the one answer for every reader.

A round, one fresh process, is the unit of replication: steps inside a process share its allocator,
its caches and its neighbours, so they are no independent evidence. A *pair* is one round of two cells
that the same session measured: their rounds were interleaved, so both saw the same machine. Rounds of
different sessions are never paired, whatever their numbers: a machine at another time is another machine.
With ``d = ln(candidate / reference)`` over the pairs:

* the estimate is the geometric mean ratio, ``exp(mean(d))``;
* the interval is Student's t on ``d``, ``exp(mean(d) ± t(n-1) · sd(d) / sqrt(n))``.

A drift that multiplies both arms of a round by the same factor cancels exactly. One pair gives an
estimate and no interval.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from suite.summary import CellSummary

CONFIDENCE = 0.95
RoundKey = TypeVar("RoundKey", bound=Hashable)


@dataclass(frozen=True)
class PairedRatio:
    """Geometric mean of candidate / reference over ``rounds`` pairs; no bounds from a single round.

    ``rounds`` 0: predicted, not measured.
    """

    estimate: float
    low: float | None
    high: float | None
    rounds: int

    @property
    def text(self) -> str:
        """``+7.2 % [5.9, 8.5]``, or ``+7.2 % (1 round: no interval)``."""
        if not self.rounds:
            return f"{self.brief} predicted"
        return self.brief if self.low is not None else f"{self.brief} (1 round: no interval)"

    @property
    def brief(self) -> str:
        """:attr:`text` without words, for a narrow column."""
        head = show_change(self.estimate)
        if self.low is None or self.high is None:
            return head
        return f"{head} [{_signed(self.low)}, {_signed(self.high)}]"


def step_time_ratio(candidate: CellSummary, reference: CellSummary) -> PairedRatio | None:
    """Step time of ``candidate`` against ``reference``; None if no session measured a round of both.

    Where neither was measured, the ratio of what was predicted.
    """
    if candidate.predicted and reference.predicted and candidate.step_time_s and reference.step_time_s:
        return PairedRatio(candidate.step_time_s / reference.step_time_s, None, None, 0)
    return paired_ratio(candidate.rounds_by_session_s, reference.rounds_by_session_s)


def comparable(a: CellSummary, b: CellSummary) -> bool:
    """Whether some session measured a round of both."""
    return bool(a.rounds_by_session_s.keys() & b.rounds_by_session_s.keys())


def step_time_logs(candidate: CellSummary, reference: CellSummary) -> list[float]:
    """``ln(candidate / reference)`` of every pair."""
    return paired_logs(candidate.rounds_by_session_s, reference.rounds_by_session_s)


def show_change(ratio: float) -> str:
    """A ratio as the percentage by which it differs from one: ``+7.2 %``."""
    return f"{_signed(ratio, plus=True)} %"


def _signed(ratio: float, plus: bool = False) -> str:
    # Adding zero turns -0.0 into 0.0: "-0.0 %" would read as a saving.
    percent = round((ratio - 1) * 100, 1) + 0.0
    return f"{percent:{'+' if plus else ''}.1f}".replace("-", "\N{MINUS SIGN}")


def paired_ratio(
    candidate: Mapping[RoundKey, float],
    reference: Mapping[RoundKey, float],
    confidence: float = CONFIDENCE,
) -> PairedRatio | None:
    """Compare two cells by their rounds; None if they share none.

    Args:
        candidate: what identifies a round to its step time in seconds, positive.
        reference: the same for the policy that is compared with.
        confidence: coverage of the t-interval.
    """
    logs = paired_logs(candidate, reference)
    if not logs:
        return None
    center = math.fsum(logs) / len(logs)
    if len(logs) == 1:
        return PairedRatio(math.exp(center), None, None, 1)
    # Here, since it takes a third of a second, which every start of the command line would pay.
    from scipy.special import stdtrit

    spread = math.sqrt(math.fsum((d - center) ** 2 for d in logs) / (len(logs) - 1))
    half = float(stdtrit(len(logs) - 1, (1 + confidence) / 2)) * spread / math.sqrt(len(logs))
    return PairedRatio(math.exp(center), math.exp(center - half), math.exp(center + half), len(logs))


def paired_logs(candidate: Mapping[RoundKey, float], reference: Mapping[RoundKey, float]) -> list[float]:
    """``ln(candidate / reference)`` of every round that both have, in the candidate's order."""
    return [math.log(candidate[r]) - math.log(reference[r]) for r in candidate if r in reference]

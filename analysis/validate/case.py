"""What becomes of a row: cases to predict, a partner of one, or the reason why it cannot be predicted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Request = dict[str, Any]
Answer = dict[str, Any]
Kind = Literal["memory", "memory_difference", "time_ratio", "activation_formula", "fits"]


@dataclass(frozen=True)
class Case:
    """One figure of one row, the requests that predict it and how their answers make the figure.

    Attributes:
        policy: the policy as the suite names it.
        kind: ``memory``: ``metric`` of the one request. ``memory_difference``: of the first less that of
            the second. ``time_ratio``: of the first over the second; with four requests, of the first
            less the second over the third less the fourth: a block's share, from two depths.
            ``activation_formula``: with two requests their difference times ``scale`` in bytes, with four
            the ratio of the two differences. ``fits``: whether the one request fits ``capacity_bytes``.
        metric: the name of the predicted figure. ``reserved_bytes`` stands for the interval from
            ``reserved_low_bytes`` to ``reserved_high_bytes``: inside it there is no error.
        expected: bytes, a ratio, or for ``fits`` 1 or 0.
        per_token: step times are divided by the tokens of a replica's step.
        caveat: how what is predicted differs from what was measured.
    """

    row_id: str
    source: str
    policy: str
    kind: Kind
    metric: str
    expected: float
    requests: tuple[Request, ...]
    scale: float = 1.0
    per_token: bool = False
    capacity_bytes: int = 0
    caveat: str = ""

    @property
    def in_points(self) -> bool:
        """Whether the figure is a ratio, whose error is counted in points."""
        return self.kind == "time_ratio" or (self.kind == "activation_formula" and len(self.requests) == 4)


@dataclass(frozen=True)
class Unmodelled:
    """A row that is not predicted: what the source leaves out, or the suite does not have."""

    row_id: str
    source: str
    reason: str


@dataclass(frozen=True)
class Partner:
    """A row that is only the other side of the comparison of the row ``of``."""

    row_id: str
    source: str
    of: str


Outcome = Case | Unmodelled | Partner


def tokens_of(request: Request) -> int:
    """Tokens that one replica computes in one optimizer step."""
    config = request["config"]
    micro_batches = config.get("parallel", {}).get("micro_batches", 1)
    return int(config["batch_size"] * config["seq_len"] * micro_batches)


def rows_by_outcome(outcomes: Sequence[Outcome]) -> dict[str, set[str]]:
    """Row ids under ``case``, ``partner`` and ``unmodelled``; a row with a case is under that alone."""
    cases = {o.row_id for o in outcomes if isinstance(o, Case)}
    unmodelled = {o.row_id for o in outcomes if isinstance(o, Unmodelled)} - cases
    partners = {o.row_id for o in outcomes if isinstance(o, Partner)} - cases - unmodelled
    return {"case": cases, "partner": partners, "unmodelled": unmodelled}

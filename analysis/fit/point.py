"""One predicted point: a value of the axis under a policy, and whether it fits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from analysis.fit.question import Limits

FITS, TIGHT, OVER, REFUSED = "fits", "tight", "does not fit", "refused"


@dataclass(frozen=True)
class Point:
    """What the predictor says of one value.

    Attributes:
        spare_bytes: between what is needed at least and the limit; negative: so much too much. None where
            the predictor refused.
        verdict: ``fits``; ``tight``: only if the allocator fragments nothing, which expandable segments
            come near to; ``does not fit``; ``refused``.
        reason: of the predictor, why not.
    """

    value: int
    verdict: str
    spare_bytes: int | None = None
    figures: dict[str, float] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)
    reason: str = ""

    @property
    def fits(self) -> bool:
        """Whether it runs at all, tightly or not."""
        return self.verdict in (FITS, TIGHT)

    @property
    def peak_bytes(self) -> int | None:
        """Most bytes allocated at once in a step."""
        return int(self.figures["peak_bytes"]) if "peak_bytes" in self.figures else None


def point_of(value: int, answer: Mapping[str, Any], limits: Limits) -> Point:
    """The point that an answer of the predictor describes."""
    figures: dict[str, float] | None = answer.get("figures")
    if figures is None or "peak_bytes" not in figures:
        return Point(value, REFUSED, reason=str(answer.get("error", "no figure peak_bytes")))
    peak = figures["peak_bytes"]
    spares: list[float] = []
    tight = False
    if limits.capacity_bytes is not None:
        spares.append(limits.capacity_bytes - figures.get("least_device_used_bytes", peak))
        tight = figures.get("device_used_bytes", peak) > limits.capacity_bytes
    if limits.budget_bytes is not None:
        spares.append(limits.budget_bytes - peak)
    spare = int(min(spares))
    verdict = OVER if spare < 0 else TIGHT if tight else FITS
    return Point(value, verdict, spare, dict(figures), dict(answer.get("detail", {})))

"""How two sets of named tensors differ."""

import math
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Difference:
    """One tensor against its reference.

    Attributes:
        absolute: largest absolute difference of an element.
        relative: norm of the difference over the norm of the reference (1 if that is zero).
        equal: bitwise equal.
        within: equal, or ``relative`` is within the tolerance that was asked for.
        reason: in words, where not equal.
    """

    name: str
    absolute: float
    relative: float
    equal: bool
    within: bool
    reason: str

    @property
    def finite(self) -> bool:
        """Whether the difference is a number at all."""
        return math.isfinite(self.absolute) and math.isfinite(self.relative)

    def as_dict(self) -> dict[str, Any]:
        """For a record, which holds finite numbers only."""
        numbers = {"abs_diff": self.absolute, "rel_diff": self.relative}
        shown = {k: v if math.isfinite(v) else str(v) for k, v in numbers.items()}
        return {"name": self.name, "reason": self.reason, **shown}


def compare_tensors(
    reference: dict[str, torch.Tensor], other: dict[str, torch.Tensor], tolerance: float
) -> list[Difference]:
    """One :class:`Difference` per name in either set; a missing tensor is not within any tolerance."""
    names = [*reference, *(name for name in other if name not in reference)]
    return [_compare(name, reference.get(name), other.get(name), tolerance) for name in names]


def _compare(
    name: str, reference: torch.Tensor | None, other: torch.Tensor | None, tolerance: float
) -> Difference:
    if reference is None or other is None:
        there = "missing under the policy" if other is None else "there under the policy only"
        return Difference(name, math.inf, math.inf, False, False, there)
    if reference.shape != other.shape or reference.dtype != other.dtype:
        shapes = f"{list(other.shape)} {other.dtype} instead of {list(reference.shape)} {reference.dtype}"
        return Difference(name, math.inf, math.inf, False, False, shapes)
    if torch.equal(reference, other):
        return Difference(name, 0.0, 0.0, True, True, "")
    gap = (other.double() - reference.double()).flatten()
    absolute = float(gap.abs().max())
    scale = float(reference.double().norm())
    relative = float(gap.norm()) / scale if scale > 0 else 1.0
    if not math.isfinite(relative):
        return Difference(name, math.inf, math.inf, False, False, "not finite")
    reason = f"{relative:.2g} of its norm"
    return Difference(name, absolute, relative, False, relative <= tolerance, reason)

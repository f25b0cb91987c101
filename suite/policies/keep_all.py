"""``none``: every intermediate result is kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suite.policies.base import Applied, Policy

if TYPE_CHECKING:
    from suite.models.decoder import Decoder


class KeepAll(Policy):
    """Plain autograd: the reference that every other policy is compared with."""

    family = "none"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """No options."""

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:  # noqa: ARG002
        """Leave the model alone."""
        return Applied()

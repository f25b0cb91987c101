"""``segments``: runs of n blocks keep the input of the run."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suite.config.schema import CellConfig
from suite.errors import Unsupported, UsageError
from suite.policies.base import Applied, Policy

if TYPE_CHECKING:
    from suite.models.decoder import Decoder


class Segments(Policy):
    """Uniform segments (Chen et al. 2016; Megatron-LM's ``uniform`` method).

    Between segments one block input is kept; while a segment is in backward all of its n blocks are
    rebuilt at once. With n = sqrt(L) both grow as sqrt(L).
    """

    family = "segments"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """``n``: blocks per segment, or ``sqrt`` for the whole number nearest to sqrt(depth)."""

        n: int | str | None = None

        def check(self) -> None:
            """A positive whole number or the word."""
            whole = isinstance(self.n, int) and not isinstance(self.n, bool) and self.n >= 1
            if not whole and self.n != "sqrt":
                raise UsageError("policy.n", self.n, "expected a whole number >= 1 or sqrt")

    def blocks_per_segment(self, depth: int) -> int:
        """``n`` resolved for a trunk of ``depth`` blocks."""
        n = self.config.n
        return max(1, round(math.sqrt(depth))) if n == "sqrt" else int(n)

    def spans(self, depth: int) -> list[range]:
        """Block indices of each segment; the last one is shorter where n does not divide the depth."""
        n = self.blocks_per_segment(depth)
        return [range(start, min(start + n, depth)) for start in range(0, depth, n)]

    def check(self, cell: CellConfig) -> None:
        """A segment cannot be longer than the model."""
        depth = cell.model.n_layers
        if self.blocks_per_segment(depth) > depth:
            raise Unsupported(f"policy.n={self.config.n}: the model has {depth} blocks")

    def apply(self, model: "Decoder") -> Applied:
        """Run the trunk segment by segment."""
        from suite.policies.regions import checkpoint_spans

        spans = self.spans(len(model.blocks))
        checkpoint_spans(model, spans, use_reentrant=False)
        return Applied(tuple(f"blocks.{s.start}-{s.stop - 1}" for s in spans))

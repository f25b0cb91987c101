"""``segments``: runs of n blocks keep the input of the run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suite.config.schema import CellConfig
from suite.errors import Unsupported, UsageError
from suite.policies.base import Applied, Policy, Region
from suite.policies.entries import Entry, scope_of

if TYPE_CHECKING:
    from suite.models.decoder import Decoder


class Segments(Policy):
    """Uniform segments (Chen et al. 2016; Megatron-LM's ``uniform`` method).

    Between segments one block input is kept; while a segment is in backward all of its n blocks are
    rebuilt at once. With n = sqrt(L) both grow as sqrt(L).
    """

    family = "segments"
    shorthand = "n"

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

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Run the trunk segment by segment."""
        from suite.policies.regions import checkpoint_span

        entry = Entry("segments", scope_of(blocks))
        regions = []
        for span in self.spans(len(blocks)):
            indices = [blocks[i] for i in span]
            checkpoint_span([model.blocks[i] for i in indices], entry, use_reentrant=False)
            regions.append(Region(f"blocks.{indices[0]}-{indices[-1]}", scope_of(indices)))
        return Applied(tuple(regions), (entry,))

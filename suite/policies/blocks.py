"""``blocks``: some blocks are recomputed whole, the others keep everything."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suite.config.schema import CellConfig
from suite.errors import MatchedNothing, UsageError
from suite.policies.base import Applied, Policy, Region, require_bool
from suite.policies.entries import Entry, scope_of
from suite.policies.selectors import GRAMMAR, check_selector, select_blocks

if TYPE_CHECKING:
    from suite.models.decoder import Decoder


class Blocks(Policy):
    """Megatron-LM's ``block`` method, torchtitan's layer frequency and llm-foundry's selector in one."""

    family = "blocks"
    shorthand = "select"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """Exactly one of ``select``, ``every_n`` and ``fraction`` says which blocks are recomputed.

        Attributes:
            select: the selector grammar (:mod:`suite.policies.selectors`); a list is joined by commas.
            every_n: block 0, n, 2n, ...
            fraction: this share of the blocks, rounded up, spread evenly from the first one.
            skip_last: leave the last block out. Its replay follows its forward at once and frees
                memory only for the head and the loss, which a small vocabulary does not need.
        """

        select: Any = ""
        every_n: int = 0
        fraction: float = 0.0
        skip_last: bool = False

        def __post_init__(self) -> None:
            if isinstance(self.select, list | tuple):
                object.__setattr__(self, "select", ",".join(map(str, self.select)))
            elif isinstance(self.select, int) and not isinstance(self.select, bool):
                object.__setattr__(self, "select", str(self.select))

        def check(self) -> None:
            """One way of choosing, in its range."""
            require_bool("policy.skip_last", self.skip_last)
            if not isinstance(self.select, str):
                raise UsageError("policy.select", self.select, f"expected {GRAMMAR}")
            if not isinstance(self.every_n, int) or isinstance(self.every_n, bool) or self.every_n < 0:
                raise UsageError("policy.every_n", self.every_n, "expected a whole number >= 1")
            if not isinstance(self.fraction, int | float) or not 0 <= self.fraction <= 1:
                raise UsageError("policy.fraction", self.fraction, "expected a number in (0, 1]")
            given = [n for n in ("select", "every_n", "fraction") if getattr(self, n)]
            if len(given) != 1:
                chosen = " and ".join(given) or "nothing"
                raise UsageError(
                    "policy", "blocks", f"set one of select, every_n and fraction; got {chosen}"
                )
            if self.select:
                check_selector(self.select, "policy.select")

    def selected(self, depth: int) -> list[int]:
        """Indices of the recomputed blocks of a trunk of ``depth`` blocks."""
        config = self.config
        if config.select:
            chosen = select_blocks(config.select, depth, "policy.select")
        elif config.every_n:
            chosen = list(range(0, depth, config.every_n))
        else:
            count = math.ceil(config.fraction * depth)
            chosen = sorted({i * depth // count for i in range(count)})
        if config.skip_last:
            chosen = [i for i in chosen if i != depth - 1]
        if not chosen:
            raise MatchedNothing(
                f"policy.skip_last=true: leaves no block; the model has blocks 0 to {depth - 1}"
            )
        return chosen

    def check(self, cell: CellConfig) -> None:
        """The selection must name blocks that exist."""
        self.selected(cell.model.n_layers)

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Make each selected block a region."""
        from suite.policies.regions import checkpoint_module

        chosen = [blocks[i] for i in self.selected(len(blocks))]
        entry = Entry("recomputed blocks", scope_of(chosen))
        for index in chosen:
            checkpoint_module(model.blocks[index], entry, use_reentrant=False)
        return Applied(tuple(map(Region.of_block, chosen)), (entry,))

"""``budget``: torch.compile's own partitioner chooses what is kept, up to a share of what it would keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suite.config.schema import CellConfig
from suite.errors import Unsupported, UsageError
from suite.policies.base import Applied, Policy, Region
from suite.policies.entries import Entry, scope_of

if TYPE_CHECKING:
    from suite.models.decoder import Decoder

SOLVERS = ("dp", "greedy", "ilp")
SCOPES = ("auto", "block", "model")


class Budget(Policy):
    """torch.compile's activation memory budget (``torch.autograd.graph.region_activation_memory_budget``).

    The partitioner solves a 0-1 knapsack over the outputs that it would keep for speed: which of them
    fit into the share ``fraction`` of their bytes beyond the graph's inputs, so that the least FLOPs are
    recomputed. 1 keeps what plain compilation keeps, 0 only the inputs of a graph: with compile=block
    those of every block, as ``full`` does, with compile=model nothing between the blocks at all.

    The share is no bound on the peak, whose moment and whose transients the knapsack does not know, and
    neither saved bytes nor peak need fall with it. Bytes and FLOPs say what came of it, not the fraction.
    """

    family = "budget"
    shorthand = "fraction"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """A share, and who solves the knapsack for what.

        Attributes:
            fraction: 0 to 1. It has no default that would do for every model.
            solver: ``dp`` is exact up to its rounding of each size to a ten-thousandth of the whole;
                ``greedy`` may lose a lot; ``ilp`` is scipy's, exact.
            scope: what a share is of: each ``block`` or the whole ``model``. It is what compile is set to;
                ``auto`` takes either.
        """

        fraction: float | None = None
        solver: str = "dp"
        scope: str = "auto"

        def __post_init__(self) -> None:
            if isinstance(self.fraction, int) and not isinstance(self.fraction, bool):
                object.__setattr__(self, "fraction", float(self.fraction))

        def check(self) -> None:
            """A share, and known words."""
            if not isinstance(self.fraction, float) or not 0 <= self.fraction <= 1:
                raise UsageError("policy.fraction", self.fraction, "expected a number from 0 to 1")
            if self.solver not in SOLVERS:
                raise UsageError("policy.solver", self.solver, f"expected one of {', '.join(SOLVERS)}")
            if self.scope not in SCOPES:
                raise UsageError("policy.scope", self.scope, f"expected one of {', '.join(SCOPES)}")

    def check_compile(self, cell: CellConfig) -> None:
        """There must be a compiled graph of the right scope, which draws no random numbers."""
        config, wanted = self.config, "block" if self.config.scope == "auto" else self.config.scope
        if cell.compile == "none":
            raise Unsupported(f"policy=budget: only compiled code has a budget; set compile={wanted}")
        if config.scope not in ("auto", cell.compile):
            raise Unsupported(
                f"policy.scope={config.scope}: this cell has compile={cell.compile}; "
                f"set compile={config.scope}, or policy.scope=auto"
            )
        if cell.compile == "model" and cell.policy.family != self.family:
            raise Unsupported(
                "policy.blocks: a budget for some blocks needs graphs of their own; set compile=block"
            )
        if cell.model.dropout > 0 and config.fraction < 1:
            raise Unsupported(
                f"policy.fraction={config.fraction:g}: torch draws dropout masks afresh where it "
                "recomputes for a budget, and gradients are wrong; use model.dropout=0, or policy=full"
            )

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Give each block's forward the budget, and the model's own.

        What is compiled decides which of them is traced: a budget inside the same budget changes nothing,
        and in code that is not compiled there is none.
        """
        from suite.policies.budgeted import budgeted, partitioner

        config, whole = self.config, len(blocks) == len(model.blocks)
        entry = Entry(self.family, scope_of(blocks))
        if config.scope != "model":
            for index in blocks:
                block = model.blocks[index]
                block.forward = budgeted(block.forward, config.fraction, entry)
        if config.scope != "block" and whole:
            model.forward = budgeted(model.forward, config.fraction, entry)  # type: ignore[method-assign]
            model.hidden = budgeted(model.hidden, config.fraction, entry)  # type: ignore[method-assign]
        regions = tuple(map(Region.of_block, blocks))
        settings = partitioner(config.fraction, config.solver, whole=whole)
        return Applied(regions, (entry,), "policy", partitioner=settings)

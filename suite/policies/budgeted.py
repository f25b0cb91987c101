"""Code that is compiled under an activation memory budget. Imports torch: used by ``apply`` only."""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import graph

from suite.errors import Unsupported
from suite.policies.entries import Entry
from suite.policies.traced import hit

# Public from torch 2.13 on: the budget is part of the trace, so that no other graph takes it.
_region: Callable[[float], Any] | None = getattr(graph, "region_activation_memory_budget", None)


def budgeted(forward: Callable[..., Any], fraction: float, entry: Entry) -> Callable[..., Any]:
    """``forward`` under the budget where it is traced, and as it is where it is not."""

    def under_budget(*args: Any) -> Any:
        if not torch.compiler.is_compiling():
            return forward(*args)
        with hit(entry):
            # All of it is what there is without a budget; and where dropout adds seeds to the graph, which
            # are in no region, torch refuses every region.
            if _region is None or fraction == 1:
                return forward(*args)
            with _region(fraction):
                return forward(*args)

    return under_budget


def partitioner(fraction: float, solver: str, *, whole: bool) -> dict[str, Any]:
    """The settings under which the graphs of such code are to be split.

    Before torch 2.13 the budget is such a setting too, one for all graphs of the model.
    Raises Unsupported if it is for some blocks only (``whole`` is false) and this torch has but one.
    """
    settings: dict[str, Any] = {"activation_memory_budget_solver": solver}
    if _region is None:
        if not whole:
            raise Unsupported(
                f"policy.blocks: torch {torch.__version__} has one budget for all blocks; "
                "use policy=budget, or torch 2.13"
            )
        settings["activation_memory_budget"] = fraction
    return settings

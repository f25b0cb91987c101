"""What each policy family keeps and recomputes, as formulas over the shape.

One function per family, entered in :data:`RULES` under its name. ``saved`` is what is alive when the
forward ends because of the block; ``transient`` what a region rebuilds at once; ``flops`` what the
replay executes, with early stop where the family has it.
"""

from suite.config.schema import CellConfig
from suite.predict.policies.discarding import discard, rebuild
from suite.predict.policies.operators import named, ops
from suite.predict.policies.regions import blocks, full, keep_all, modules, segments
from suite.predict.policies.trunk import Rule, Trunk

RULES: dict[str, Rule] = {
    "none": keep_all,
    "full": full,
    "segments": segments,
    "blocks": blocks,
    "modules": modules,
    "discard": discard,
    "rebuild": rebuild,
    "ops": ops,
    "named": named,
}

__all__ = ["RULES", "Trunk", "trunk_of"]


def trunk_of(config: CellConfig) -> Trunk:
    """The formulas of the cell's policy, added up over its blocks."""
    return RULES[config.policy.family](config, config.policy, range(config.model.n_layers))

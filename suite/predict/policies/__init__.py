"""What each policy family keeps and recomputes, as formulas over the shape.

One function per family, entered in :data:`RULES` under its name. ``saved`` is what is alive when the
forward ends because of the block; ``transient`` what a region rebuilds at once; ``flops`` what the
replay executes, with early stop where the family has it.
"""

from collections.abc import Sequence
from dataclasses import replace

from suite.config.schema import CellConfig, PolicyConfig
from suite.policies import make_policy
from suite.policies.assignment import Assignment
from suite.predict.policies.budgets import budget
from suite.predict.policies.compressing import compressed
from suite.predict.policies.discarding import discard, rebuild
from suite.predict.policies.hosting import offload
from suite.predict.policies.operators import named, ops
from suite.predict.policies.regions import blocks, full, keep_all, modules, segments
from suite.predict.policies.tiling import keeps_logits, loss_replay, tiled
from suite.predict.policies.trunk import Rule, Trunk


def assignment(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """The sum of its parts; blocks that none of them names keep everything."""
    family = make_policy(policy)
    assert isinstance(family, Assignment)
    parts = family.parts(len(blocks))
    named = {index for _, indices in parts for index in indices}
    rest = [index for index in range(len(blocks)) if index not in named]
    trunk = keep_all(config, policy, rest)
    for part, indices in parts:
        trunk += RULES[part.family](config, part, indices)
    if family.config.loss > 1:
        trunk += Trunk(0, 0, loss_replay(config))
    return trunk


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
    "offload": offload,
    "compressed": compressed,
    "tiled": tiled,
    "budget": budget,
    "assignment": assignment,
}

__all__ = ["RULES", "Trunk", "keeps_logits", "trunk_of"]


def trunk_of(config: CellConfig) -> Trunk:
    """The formulas of the cell's policy, added up over its blocks.

    They are those of eager mode. What a compiler fuses it need not keep, and in a graph of many blocks it
    may keep other tensors altogether: for a compiled cell they are an estimate.
    """
    trunk = RULES[config.policy.family](config, config.policy, range(config.model.n_layers))
    return trunk if config.compile == "none" else replace(trunk, exact=False)

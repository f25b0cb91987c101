"""Formulas of the family that works tile by tile: tiled."""

from collections.abc import Sequence

from suite.config.schema import CellConfig, PolicyConfig
from suite.policies import make_policy
from suite.policies.assignment import Assignment
from suite.policies.tiled import Tiled
from suite.predict.flops import block_flops, head_flops
from suite.predict.policies.trunk import Trunk
from suite.predict.tensors import block_tensors, total


def tiled(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """All but the inside of the MLPs; a tile of one is rebuilt at once."""
    family = make_policy(policy)
    assert isinstance(family, Tiled)
    tensors, tiles = block_tensors(config), family.config.mlp
    head = loss_replay(config) if family.config.loss > 1 and not family.config.linear_cross_entropy else 0
    if tiles == 1:
        return Trunk(len(blocks) * total(tensors), 0, head)
    inside = [t for t in tensors if t.name.startswith("mlp.") and t.name != "mlp.mask"]
    saved = total(tensors) - total(inside)
    replay = len(blocks) * block_flops(config).up
    return Trunk(len(blocks) * saved, -(-total(inside) // tiles), replay + head)


def loss_replay(config: CellConfig) -> int:
    """FLOPs of the head's product, which each chunk of the loss runs again for its logits."""
    return head_flops(config)


def keeps_logits(policy: PolicyConfig) -> bool:
    """Whether the logits are there when the forward ends: not where head and loss run in chunks."""
    family = make_policy(policy)
    return not (isinstance(family, Tiled | Assignment) and family.config.loss > 1)

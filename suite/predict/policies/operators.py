"""Formulas of the families that keep chosen outputs inside a recomputed block: ops."""

from collections.abc import Sequence

from suite.config.schema import CellConfig, PolicyConfig
from suite.policies import make_policy
from suite.policies.ops import EVERY_SECOND, GROUPS, Ops
from suite.predict.flops import block_flops
from suite.predict.policies.regions import input_bytes
from suite.predict.policies.trunk import Trunk
from suite.predict.tensors import block_tensors, operator_outputs, total


def ops(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """The input and the kept outputs; replay runs what was not kept."""
    family = make_policy(policy)
    assert isinstance(family, Ops)
    save, names = family.config.save, family.names
    outputs = operator_outputs(config)
    products = dict(outputs["mm"]) if "mm" in names else {}
    if save == EVERY_SECOND:
        products = {name: products[name] for name in list(products)[::2]}
    if isinstance(save, str) and save.endswith("-down"):
        products = {n: size for n, size in products.items() if n not in block_flops(config).unread}
    attention = outputs["attn"] if "attn" in names else {}
    return kept_outputs(config, products, attention, len(blocks), exact=set(names) <= set(GROUPS))


def kept_outputs(
    config: CellConfig,
    products: dict[str, int],
    attention: dict[str, int],
    depth: int,
    *,
    exact: bool = True,
) -> Trunk:
    """Blocks that are recomputed but for these outputs, each a name and its bytes."""
    flops = block_flops(config)
    never = set() if config.model.dropout else set(flops.unread)
    rerun = operator_outputs(config)["mm"].keys() - products.keys() - never
    extra = sum(getattr(flops, name) for name in rerun)
    return Trunk(
        depth * (input_bytes(config) + sum(products.values()) + sum(attention.values())),
        total(block_tensors(config)),
        depth * (extra + (0 if attention else flops.scores)),
        exact=exact,
    )

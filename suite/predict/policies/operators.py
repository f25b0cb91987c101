"""Formulas of the families that keep chosen outputs inside a recomputed block: ops, named."""

from collections.abc import Sequence
from dataclasses import replace

from suite.config.schema import CellConfig, PolicyConfig
from suite.policies import make_policy
from suite.policies.named import Named
from suite.policies.ops import EVERY_SECOND, GROUPS, Ops
from suite.predict.flops import block_flops
from suite.predict.policies.regions import input_bytes
from suite.predict.policies.trunk import Trunk
from suite.predict.tensors import (
    Sizes,
    attention_in_float32,
    block_tensors,
    element_bytes,
    fused_attention,
    operator_outputs,
    total,
)


def ops(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """The input and the kept outputs; replay runs what was not kept."""
    family = make_policy(policy)
    assert isinstance(family, Ops)
    products, attention = selected_outputs(config, family)
    exact = set(family.names) <= set(GROUPS)
    return kept_outputs(config, products, attention, len(blocks), exact=exact)


def selected_outputs(config: CellConfig, family: Ops) -> tuple[dict[str, int], dict[str, int]]:
    """What is kept of one block's products and of its attention, each a name and its bytes."""
    save, names = family.config.save, family.names
    outputs = operator_outputs(config)
    products = dict(outputs["mm"]) if "mm" in names else {}
    if save == EVERY_SECOND:
        products = {name: products[name] for name in list(products)[::2]}
    if isinstance(save, str) and save.endswith("-down"):
        products = {n: size for n, size in products.items() if n not in block_flops(config).unread}
    return products, outputs["attn"] if "attn" in names else {}


# The products by their names in the option and in the tables of tensors.
PRODUCTS = {
    "qkv": ("qkv",),
    "wo": ("out",),
    "router": ("router",),
    "up": ("up", "shared_up"),
    "down": ("down", "shared_down"),
}


def named(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """The input and the named products; replay runs the others."""
    family = make_policy(policy)
    assert isinstance(family, Named)
    saved: dict[str, str] = family.config.kept
    outputs, sizes = operator_outputs(config), Sizes.of(config)
    held = {part: name for name in saved for part in PRODUCTS.get(name, ()) if part in outputs["mm"]}
    products = {part: outputs["mm"][part] for part in held}
    if "router" in products:
        # The probabilities, and the weight and the index of each choice.
        chosen = (4 + 8) * sizes.rows * config.model.top_k
        products["router"] += 4 * sizes.rows * config.model.n_experts + chosen
    fused = fused_attention(config)
    wider = 4 // element_bytes(config) if attention_in_float32(config) else 1
    plain = {"core.out": wider * sizes.heads}
    core = {} if "core" not in saved else outputs["attn"] if fused else plain
    trunk = kept_outputs(config, products, core, len(blocks))
    if core and not fused:
        # The weights are rebuilt for backward all the same: the first of the two products runs again.
        half = len(blocks) * block_flops(config).scores // 2
        trunk = replace(trunk, recomputed_flops=trunk.recomputed_flops + half)
    host = sum(size for part, size in products.items() if saved[held[part]] == "offload")
    if saved.get("core") == "offload":
        host += sum(core.values())
    return replace(
        trunk,
        saved_bytes=trunk.saved_bytes - len(blocks) * host,
        host_bytes=len(blocks) * host,
        transient_bytes=trunk.transient_bytes + 2 * host,
    )


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

"""Formulas of the families that drop what is cheap to rebuild: discard, rebuild."""

from collections.abc import Sequence

from suite.config.schema import CellConfig, PolicyConfig
from suite.models.shape import FAMILIES
from suite.policies import make_policy
from suite.policies.discard import Discard
from suite.policies.rebuild import Rebuild
from suite.predict.flops import block_flops
from suite.predict.policies.trunk import Trunk
from suite.predict.tensors import block_tensors, total

_ACT = tuple(f"{mlp}.{what}" for mlp in ("mlp", "mlp.experts", "mlp.shared") for what in ("silu", "act"))
# What a target drops, by prefix, and what stays of it as its region's input.
_DROPS = {
    "norm": ("attn_norm.", "mlp_norm."),
    "act": _ACT,
    "core_attn": ("core.",),
}
_STAYS = {
    "norm": frozenset({"attn_norm.input", "mlp_norm.input"}),
    "act": frozenset[str](),
    "core_attn": frozenset({"attn.qkv", "attn.rotated_qk", "attn.v"}),
}


def discard(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """All but the outputs of the targets and what is inside them; only ``core_attn`` replays products."""
    family = make_policy(policy)
    assert isinstance(family, Discard)
    tensors = block_tensors(config)
    kept = {t.name for t in tensors if t.kept}
    for target in family.targets:
        drops, stays = _DROPS[target], _STAYS[target]
        if target == "norm" and FAMILIES[config.model.family].routed:
            # The other norm has more readers than one product.
            drops, stays = ("attn_norm.",), frozenset({"attn_norm.input"})
        kept = {n for n in kept if not n.startswith(drops)} | stays
    saved = sum(t.nbytes for t in tensors if t.name in kept)
    replay = block_flops(config).scores if "core_attn" in family.targets else 0
    return Trunk(len(blocks) * saved, total(tensors) - saved, len(blocks) * replay)


_REBUILT = {
    "norm": ("attn_norm.", "mlp_norm."),
    "qkv": ("attn.qkv", "attn.rotated_qk", "attn.v"),
    "core_attn": ("core.",),
    "up": ("mlp.up", "mlp.gate_up", "mlp.experts.gate_up", "mlp.shared.gate_up"),
    "act": _ACT,
}
# What a target is rebuilt from, and is kept unless it is a target itself.
_SOURCES = {
    "norm": frozenset({"attn_norm.input", "mlp_norm.input"}),
    "core_attn": frozenset({"attn.qkv", "attn.rotated_qk", "attn.v"}),
}


def rebuild(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """All but the targets; each product of a target runs once more."""
    family = make_policy(policy)
    assert isinstance(family, Rebuild)
    tensors, flops = block_tensors(config), block_flops(config)
    names = {t.name for t in tensors}
    kept = {t.name for t in tensors if t.kept}
    for target in family.targets:
        kept |= _SOURCES.get(target, frozenset()) & names
    for target in family.targets:
        stays = _SOURCES["norm"] if target == "norm" else frozenset[str]()
        kept = {n for n in kept if n in stays or not n.startswith(_REBUILT[target])}
    saved = sum(t.nbytes for t in tensors if t.name in kept)
    costs = {"qkv": flops.qkv, "core_attn": flops.scores, "up": flops.up + flops.shared_up}
    replay = sum(costs.get(target, 0) for target in family.targets)
    return Trunk(len(blocks) * saved, total(tensors) - saved, len(blocks) * replay)

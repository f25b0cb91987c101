"""Formulas of the families that recompute whole modules: none, full, segments, blocks, modules."""

from collections.abc import Sequence

from suite.config.schema import CellConfig, PolicyConfig
from suite.policies import make_policy
from suite.policies.blocks import Blocks
from suite.policies.segments import Segments
from suite.predict.flops import block_flops
from suite.predict.policies.trunk import Trunk
from suite.predict.tensors import block_tensors, fused_attention, total


def keep_all(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:  # noqa: ARG001
    """Every tensor that autograd keeps."""
    return Trunk(len(blocks) * total(block_tensors(config)))


def input_bytes(config: CellConfig) -> int:
    """One block's input."""
    return block_tensors(config)[0].nbytes


def block_replay(config: CellConfig, *, early_stop: bool = True) -> int:
    """FLOPs of one block's replay: up to the input of its last product, or all of it.

    With dropout after that product the mask must be rebuilt, so the replay runs to the end.
    """
    flops = block_flops(config)
    stops = early_stop and not config.model.dropout
    return flops.total - (sum(flops.unread.values()) if stops else 0)


def full(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """One input a block; a whole block is rebuilt."""
    options = policy.options
    early_stop = options.get("early_stop", True) and not options.get("use_reentrant", False)
    replay, depth = block_replay(config, early_stop=early_stop), len(blocks)
    return Trunk(depth * input_bytes(config), total(block_tensors(config)), depth * replay)


def segments(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """One input a segment; a whole segment is rebuilt, and only its last block stops early."""
    family = make_policy(policy)
    assert isinstance(family, Segments)
    flops, kept = block_flops(config), total(block_tensors(config))
    spans = family.spans(len(blocks))
    return Trunk(
        len(spans) * input_bytes(config),
        max(map(len, spans)) * kept,
        sum((len(span) - 1) * flops.total + block_replay(config) for span in spans),
    )


def blocks(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """Some blocks as under ``full``, the others as under ``none``."""
    family = make_policy(policy)
    assert isinstance(family, Blocks)
    depth, kept = len(blocks), total(block_tensors(config))
    chosen = len(family.selected(depth))
    return Trunk(
        chosen * input_bytes(config) + (depth - chosen) * kept, kept, chosen * block_replay(config)
    )


# A target's region: the parts inside it, and what its output or its consumer keeps all the same.
_INSIDE = {
    "attn": ("attn.", "core."),
    "mlp": ("mlp.",),
    "core_attn": ("core.",),
    "norms": ("attn_norm.", "mlp_norm."),
    "moe": ("mlp.",),
    "experts": ("mlp.experts.",),
    "shared_experts": ("mlp.shared.",),
    "router": ("mlp.router.",),
}
# Its own inputs and outputs, which lie under the same prefix.
_STAYS = {
    "core_attn": frozenset({"core.out", "attn.qkv", "attn.rotated_qk", "attn.v"}),
    "norms": frozenset({"attn_norm.input", "attn_norm.out", "mlp_norm.input", "mlp_norm.out"}),
}


def modules(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """All but the inside of each target."""
    targets: Sequence[str] = policy.options["targets"]
    tensors = block_tensors(config)
    kept = {t.name for t in tensors if t.kept}
    for target in targets:
        kept = {n for n in kept if not n.startswith(_INSIDE[target])} | _STAYS.get(target, frozenset())
    saved = sum(t.nbytes for t in tensors if t.name in kept)
    replay = sum(_module_replay(config, target) for target in targets)
    return Trunk(len(blocks) * saved, total(tensors) - saved, len(blocks) * replay)


def _module_replay(config: CellConfig, target: str) -> int:
    flops, dropout = block_flops(config), bool(config.model.dropout)
    if target in ("mlp", "moe"):
        return flops.mlp - (0 if dropout else sum(flops.unread.values()))
    inside = {"norms": 0, "experts": flops.up, "shared_experts": flops.shared_up, "router": flops.router}
    if target in inside:
        return inside[target]
    # Without a fused operator the region stops before its second product, whose inputs it rebuilt;
    # the output product of ``attn`` needs that one too.
    if target == "core_attn":
        return flops.scores if fused_attention(config) else flops.scores // 2
    return flops.qkv + flops.scores + (flops.out if dropout else 0)

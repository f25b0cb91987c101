"""What each policy family keeps and recomputes, as formulas over the shape.

One function per family, entered in :data:`RULES` under its name. ``saved`` is what is alive when the
forward ends because of the block; ``transient`` what a region rebuilds at once; ``flops`` what the
replay executes, with early stop where the family has it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from suite.config.schema import CellConfig
from suite.policies import make_policy
from suite.policies.blocks import Blocks
from suite.policies.ops import ATTENTION_OPERATORS, EVERY_SECOND, MATMUL_OPERATORS, PRESETS, Ops
from suite.policies.segments import Segments
from suite.predict.flops import block_flops
from suite.predict.tensors import block_tensors, fused_attention, operator_outputs, total


@dataclass(frozen=True)
class Trunk:
    """All blocks of a cell under its policy. ``exact``: the formula covers every saved tensor."""

    saved_bytes: int
    transient_bytes: int
    recomputed_flops: int
    exact: bool = True


def trunk_of(config: CellConfig) -> Trunk:
    """The formulas of the cell's policy, added up over its blocks."""
    return RULES[config.policy.family](config)


def _none(config: CellConfig) -> Trunk:
    return Trunk(config.model.n_layers * total(block_tensors(config)), 0, 0)


def _input_bytes(config: CellConfig) -> int:
    return block_tensors(config)[0].nbytes


def _replay(config: CellConfig, *, early_stop: bool = True) -> int:
    """One block's replay: up to the input of its last product, or all of it.

    With dropout after that product the mask must be rebuilt, so the replay runs to the end.
    """
    flops = block_flops(config)
    stops = early_stop and not config.model.dropout
    return flops.total - flops.down if stops else flops.total


def _full(config: CellConfig) -> Trunk:
    options = config.policy.options
    early_stop = options.get("early_stop", True) and not options.get("use_reentrant", False)
    depth = config.model.n_layers
    replay = _replay(config, early_stop=early_stop)
    return Trunk(depth * _input_bytes(config), total(block_tensors(config)), depth * replay)


def _segments(config: CellConfig) -> Trunk:
    policy = make_policy(config.policy)
    assert isinstance(policy, Segments)
    flops, kept = block_flops(config), total(block_tensors(config))
    spans = policy.spans(config.model.n_layers)
    return Trunk(
        len(spans) * _input_bytes(config),
        max(map(len, spans)) * kept,
        sum((len(span) - 1) * flops.total + _replay(config) for span in spans),
    )


def _blocks(config: CellConfig) -> Trunk:
    policy = make_policy(config.policy)
    assert isinstance(policy, Blocks)
    depth, kept = config.model.n_layers, total(block_tensors(config))
    chosen = len(policy.selected(depth))
    return Trunk(
        chosen * _input_bytes(config) + (depth - chosen) * kept,
        kept,
        chosen * _replay(config),
    )


# A target's region: the parts inside it, and what its output or its consumer keeps all the same.
_INSIDE = {
    "attn": ("attn.", "core."),
    "mlp": ("mlp.",),
    "core_attn": ("core.",),
    "norms": ("attn_norm.", "mlp_norm."),
}
# Its own inputs and outputs, which lie under the same prefix.
_STAYS = {
    "attn": frozenset[str](),
    "mlp": frozenset[str](),
    "core_attn": frozenset({"core.out", "attn.qkv", "attn.rotated_qk", "attn.v"}),
    "norms": frozenset({"attn_norm.input", "attn_norm.out", "mlp_norm.input", "mlp_norm.out"}),
}


def _modules(config: CellConfig) -> Trunk:
    targets: Iterable[str] = config.policy.options["targets"]
    tensors = block_tensors(config)
    kept = {t.name for t in tensors if t.kept}
    for target in targets:
        kept = {n for n in kept if not n.startswith(_INSIDE[target])} | _STAYS[target]
    saved = sum(t.nbytes for t in tensors if t.name in kept)
    depth = config.model.n_layers
    replay = sum(_module_replay(config, target) for target in targets)
    return Trunk(depth * saved, total(tensors) - saved, depth * replay)


def _module_replay(config: CellConfig, target: str) -> int:
    flops, dropout = block_flops(config), bool(config.model.dropout)
    if target == "mlp":
        return flops.up + (flops.down if dropout else 0)
    if target == "norms":
        return 0
    # Without a fused operator the region stops before its second product, whose inputs it rebuilt;
    # the output product of ``attn`` needs that one too.
    if target == "core_attn":
        return flops.scores if fused_attention(config) else flops.scores // 2
    return flops.qkv + flops.scores + (flops.out if dropout else 0)


def _ops(config: CellConfig) -> Trunk:
    policy = make_policy(config.policy)
    assert isinstance(policy, Ops)
    save = policy.config.save
    names = PRESETS[save] if isinstance(save, str) else frozenset(save)
    flops, outputs = block_flops(config), operator_outputs(config)
    known = MATMUL_OPERATORS | ATTENTION_OPERATORS
    products = dict(outputs["mm"]) if names & MATMUL_OPERATORS else {}
    if save == EVERY_SECOND:
        products = {name: products[name] for name in list(products)[::2]}
    attention = outputs["attn"] if names & ATTENTION_OPERATORS else {}
    replay = {"qkv": flops.qkv, "out": flops.out, "up": flops.up}
    if config.model.dropout:
        replay["down"] = flops.down
    extra = sum(n for name, n in replay.items() if name not in products)
    depth, kept = config.model.n_layers, total(block_tensors(config))
    saved = _input_bytes(config) + sum(products.values()) + sum(attention.values())
    return Trunk(
        depth * saved,
        kept,
        depth * (extra + (0 if attention else flops.scores)),
        exact=names <= known,
    )


RULES: dict[str, Callable[[CellConfig], Trunk]] = {
    "none": _none,
    "full": _full,
    "segments": _segments,
    "blocks": _blocks,
    "modules": _modules,
    "ops": _ops,
}

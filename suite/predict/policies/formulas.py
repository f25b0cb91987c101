"""What each family keeps of a block and runs again, written in the symbols of the catalogue.

One function per family, entered in :data:`FORMULAS` under the name of its rule. The rules compute, these
are for people to read; the tests evaluate every one of them and hold it to the rule's numbers.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from suite.config.schema import CellConfig, PolicyConfig
from suite.models.shape import FAMILIES
from suite.policies import make_policy
from suite.policies.assignment import Assignment
from suite.policies.blocks import Blocks
from suite.policies.budget import Budget
from suite.policies.compressed import Compressed
from suite.policies.discard import Discard
from suite.policies.named import Named
from suite.policies.offload import Offload
from suite.policies.ops import Ops
from suite.policies.rebuild import Rebuild
from suite.policies.segments import Segments
from suite.policies.tiled import Tiled
from suite.predict.policies.compressing import compressed
from suite.predict.policies.hosting import candidates
from suite.predict.policies.notation import core_terms, norm_terms
from suite.predict.policies.operators import PRODUCTS, selected_outputs
from suite.predict.policies.regions import input_bytes
from suite.predict.policies.terms import (
    Formula,
    block_again,
    ffn,
    grouped,
    kept_outputs,
    less,
    masks,
    mixture,
    plus,
    times,
)
from suite.predict.tensors import (
    attention_in_float32,
    block_tensors,
    element_bytes,
    fused_attention,
    operator_outputs,
    total,
)

# The workload, the policy, and how many blocks it is for.
Writer = Callable[[CellConfig, PolicyConfig, int], Formula]

# What keeping a fused attention operator's outputs holds.
_FUSED_OUTPUTS = ["ru", "LSE"]


def formula_of(config: CellConfig) -> Formula:
    """Of the cell's policy."""
    return FORMULAS[config.policy.family](config, config.policy, config.model.n_layers)


def _none(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    return Formula("A")


def _full(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    options = policy.options
    early_stop = options.get("early_stop", True) and not options.get("use_reentrant", False)
    return Formula("u", block_again(config, early_stop=early_stop))


def _segments(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:
    family = make_policy(policy)
    assert isinstance(family, Segments)
    count = len(family.spans(depth))
    work = block_again(config, early_stop=False)
    if block_again(config) != work:  # only the last block of a segment stops early
        unread = "Fsd" if FAMILIES[config.model.family].routed else "Fd"
        work += f" - {times(count, unread)}/{depth}"
    return Formula(f"{times(count, 'u')}/{depth}", work)


def _blocks(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:
    family = make_policy(policy)
    assert isinstance(family, Blocks)
    chosen = len(family.selected(depth))
    parts = [(chosen, _full(config, PolicyConfig("full"), chosen)), (depth - chosen, Formula("A"))]
    return mixture(parts, depth)


def _modules(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    model, targets = config.model, set(policy.options["targets"])
    dropout, family = bool(model.dropout), FAMILIES[model.family]
    mask = ["D"] if dropout else []
    again = ["Fo"] if dropout else []
    mlp = [ffn(config, "gate_up", "act"), *mask, *(["P"] if family.routed else [])]
    mlp_again = ["Fr", "Fgu", "Fd"] if family.routed else ["Fgu", *(["Fd"] if dropout else [])]
    if model.n_shared_experts and family.routed:
        mlp_again[-1] = "(Fd - Fsd)"
    core = ["LSE"] if core_terms(config) != ["C"] else ["(C - ru)"]
    terms = {
        "attn": (["ur(1+2κ)", *core_terms(config), *mask], ["Fqkv", "Fs", *again]),
        "mlp": (mlp, mlp_again),
        "moe": (mlp, mlp_again),
        "core_attn": (core, ["Fs" if fused_attention(config) else "Fs/2"]),
        "norms": ([grouped(norm_terms(config, norms=2))], []),
        "experts": ([_share(config, ffn(config, "gate_up", "act"))], [_share(config, "Fgu")]),
        "shared_experts": (
            [_share(config, ffn(config, "gate_up", "act"), shared=True)],
            [_share(config, "Fgu", shared=True)],
        ),
        "router": (["R"], ["Fr"]),
    }
    chosen = [found for name, found in terms.items() if name in targets]
    work = plus(term for _, again in chosen for term in again)
    if targets in ({"attn", "mlp"}, {"attn", "moe"}):
        return Formula("2u + 2N", work)
    return Formula(less(term for inside, _ in chosen for term in inside), work)


def _share(config: CellConfig, term: str, *, shared: bool = False) -> str:
    """Of a term of all active experts, the part of the routed or of the shared ones."""
    routed, others = config.model.top_k, config.model.n_shared_experts
    count = others if shared else routed
    return term if not others else f"{count}/{routed + others}({term})"


def _discard(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    family = make_policy(policy)
    assert isinstance(family, Discard)
    shape = FAMILIES[config.model.family]
    work = "Fs" if "core_attn" in family.targets else "0"
    if family.config.targets == "all" and not shape.routed:
        up = "2φ" if shape.gated else "φ"
        return Formula(plus([f"u[2 + r(1+2κ) + {up}]", *masks(config)]), work)
    norm = "N" if shape.routed else "2N"  # a mixture's second norm has more readers than one product
    dropped = {"norm": [norm], "act": [ffn(config, "act")], "core_attn": core_terms(config)}
    return Formula(less(term for target in family.targets for term in dropped[target]), work)


def _rebuild(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    family = make_policy(policy)
    assert isinstance(family, Rebuild)
    costs = {"qkv": "Fqkv", "core_attn": "Fs", "up": "Fgu"}
    work = plus(costs[target] for target in family.targets if target in costs)
    if family.config.targets == "all":
        rest = ["P"] if FAMILIES[config.model.family].routed else []
        return Formula(plus(["2u", *masks(config), *rest]), work)
    dropped = {"norm": ["2N"], "qkv": ["ur(1+2κ)"], "core_attn": core_terms(config)}
    inside = [part for target, part in (("up", "gate_up"), ("act", "act")) if target in family.targets]
    terms = [term for target in family.targets for term in dropped.get(target, [])]
    return Formula(less([*terms, *([ffn(config, *inside)] if inside else [])]), work)


def _ops(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    family = make_policy(policy)
    assert isinstance(family, Ops)
    products, attention = selected_outputs(config, family)
    return kept_outputs(config, products, _FUSED_OUTPUTS if attention else [])


def _named(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    family = make_policy(policy)
    assert isinstance(family, Named)
    there, actions = operator_outputs(config)["mm"], family.config.kept
    names = {part: name for name in actions for part in PRODUCTS.get(name, ()) if part in there}
    host = {part for part, name in names.items() if actions[name] == "offload"}
    core: list[str] = []
    also: list[str] = []
    if "core" in actions:
        wider = 4 // element_bytes(config) if attention_in_float32(config) else 1
        fused = fused_attention(config)
        core, also = (_FUSED_OUTPUTS, []) if fused else ([times(wider, "ru")], ["Fs/2"])
    sent = actions.get("core") == "offload"
    told = kept_outputs(config, names, core, also=also, host=host, core_on_host=sent)
    # What a router keeps beside its product, a few numbers a token, is in the rule's numbers alone.
    return replace(told, exact=told.exact and "router" not in actions)


def _offload(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:
    family = make_policy(policy)
    assert isinstance(family, Offload)
    like, sent = family.like, family.sent(depth)
    kept = FORMULAS[like.family](config, like, depth)
    # What is too small to be sent, or beyond the cap, is in the rule's numbers alone.
    small = any(n < family.config.min_bytes for n in candidates(config, family))
    exact = not small and family.config.host_cap is None
    if family.config.what == "module_inputs":
        return Formula(f"2u + 2N - {times(sent, '(2u)')}/{depth}", kept.work, exact=exact)
    here = mixture([(depth - sent, kept), (sent, Formula("0"))], depth).saved
    return Formula(here, kept.work, exact=exact)


def _compressed(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:
    family = make_policy(policy)
    assert isinstance(family, Compressed)
    # How much smaller depends on each tensor's type and on the scales: the share says it best.
    inputs, saved = family.config.what == "inputs", compressed(config, policy, range(depth)).saved_bytes
    whole = depth * (input_bytes(config) if inputs else total(block_tensors(config)))
    share = f"{saved / whole:.2g}{'u' if inputs else 'A'}"
    return Formula(share, block_again(config) if inputs else "0", exact=False)


def _tiled(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:
    family = make_policy(policy)
    assert isinstance(family, Tiled)
    again = family.config.loss > 1 and not family.config.linear_cross_entropy
    head = [f"Fh/{depth}"] if again else []
    if family.config.mlp == 1:
        return Formula("A", plus(head))
    return Formula(less([ffn(config, "gate_up", "act")]), plus(["Fgu", *head]))


def _budget(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    family = make_policy(policy)
    assert isinstance(family, Budget)
    kept, left = f"{family.config.fraction:g}", f"{1 - family.config.fraction:g}"
    saved = f"{kept}A" if config.compile == "model" else f"u + {kept}(A - u)"
    return Formula(saved, f"{left}({block_again(config)})")


def _assignment(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:
    family = make_policy(policy)
    assert isinstance(family, Assignment)
    parts = []
    for part, indices in family.parts(depth):
        parts.append((len(indices), FORMULAS[part.family](config, part, len(indices))))
    rest = depth - sum(count for count, _ in parts)
    mixed = mixture([*parts, (rest, Formula("A"))], depth)
    head = [f"Fh/{depth}"] if family.config.loss > 1 else []
    return Formula(mixed.saved, plus([mixed.work, *head]), exact=mixed.exact)


FORMULAS: Mapping[str, Writer] = {
    "none": _none,
    "full": _full,
    "segments": _segments,
    "blocks": _blocks,
    "modules": _modules,
    "discard": _discard,
    "rebuild": _rebuild,
    "ops": _ops,
    "named": _named,
    "offload": _offload,
    "compressed": _compressed,
    "tiled": _tiled,
    "budget": _budget,
    "assignment": _assignment,
}

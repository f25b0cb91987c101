"""What each family keeps of a block and runs again, written in the symbols of the catalogue.

One function per family, entered in :data:`FORMULAS` under the name of its rule. The rules compute, these
are for people to read; the tests evaluate every one of them and hold it to the rule's numbers.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from suite.config.schema import CellConfig, PolicyConfig
from suite.policies import make_policy
from suite.policies.assignment import Assignment
from suite.policies.blocks import Blocks
from suite.policies.discard import Discard
from suite.policies.named import Named
from suite.policies.ops import Ops
from suite.policies.rebuild import Rebuild
from suite.policies.segments import Segments
from suite.policies.tiled import Tiled
from suite.predict.policies.notation import DENSE, core_terms, norm_terms
from suite.predict.policies.operators import selected_outputs
from suite.predict.tensors import attention_in_float32, element_bytes, fused_attention


@dataclass(frozen=True)
class Formula:
    """Both are of one block, the mean over the blocks that the policy is for.

    Attributes:
        saved: bytes kept when the forward ends, in the symbols of :mod:`suite.predict.policies.notation`.
        work: FLOPs that replays execute.
    """

    saved: str
    work: str = "0"


_BRACKETED = re.compile(r"\[[^\]]*\]")
# What keeping a fused attention operator's outputs holds.
_FUSED_OUTPUTS = ["ru", "LSE"]

# The workload, the policy, and how many blocks it is for.
Writer = Callable[[CellConfig, PolicyConfig, int], Formula]


def formula_of(config: CellConfig) -> Formula | None:
    """Of the cell's policy; None for a model whose blocks the symbols do not describe."""
    if config.model.family not in DENSE:
        return None
    return FORMULAS[config.policy.family](config, config.policy, config.model.n_layers)


def _none(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    return Formula("A")


def _full(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    options = policy.options
    early_stop = options.get("early_stop", True) and not options.get("use_reentrant", False)
    return Formula("u", _block_again(config, early_stop=early_stop))


def _segments(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:
    family = make_policy(policy)
    assert isinstance(family, Segments)
    count = len(family.spans(depth))
    work = "Fg + Fs" if config.model.dropout else f"Fg + Fs - {_times(count, 'Fd')}/{depth}"
    return Formula(f"{_times(count, 'u')}/{depth}", work)


def _blocks(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:
    family = make_policy(policy)
    assert isinstance(family, Blocks)
    chosen = len(family.selected(depth))
    parts = [(chosen, _full(config, PolicyConfig("full"), chosen)), (depth - chosen, Formula("A"))]
    return _mixture(parts, depth)


def _modules(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    targets, dropout = set(policy.options["targets"]), bool(config.model.dropout)
    fused, mask = fused_attention(config), ["D"] if dropout else []
    inside = {
        "attn": ["ur(1+2κ)", *core_terms(config), *mask],
        "mlp": [_ffn(config, "gate_up", "act"), *mask],
        "core_attn": _core_inside(config),
        "norms": [_grouped(norm_terms(config, norms=2))],
    }
    work = {
        "attn": ["Fqkv", "Fs", *(["Fo"] if dropout else [])],
        "mlp": ["Fgu", *(["Fd"] if dropout else [])],
        "core_attn": ["Fs" if fused else "Fs/2"],
        "norms": [],
    }
    names = [name for name in inside if name in targets]
    again = _sum(term for name in names for term in work[name])
    if targets == {"attn", "mlp"}:
        return Formula("2u + 2N", again)
    return Formula(_less(term for name in names for term in inside[name]), again)


def _discard(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    family = make_policy(policy)
    assert isinstance(family, Discard)
    work = "Fs" if "core_attn" in family.targets else "0"
    if family.config.targets == "all":
        up = "2φ" if config.model.family == "llama" else "φ"
        return Formula(_sum([f"u[2 + r(1+2κ) + {up}]", *_masks(config)]), work)
    dropped = {"norm": ["2N"], "act": [_ffn(config, "act")], "core_attn": core_terms(config)}
    return Formula(_less(term for target in family.targets for term in dropped[target]), work)


def _rebuild(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    family = make_policy(policy)
    assert isinstance(family, Rebuild)
    costs = {"qkv": "Fqkv", "core_attn": "Fs", "up": "Fgu"}
    work = _sum(costs[target] for target in family.targets if target in costs)
    if family.config.targets == "all":
        return Formula(_sum(["2u", *_masks(config)]), work)
    dropped = {"norm": ["2N"], "qkv": ["ur(1+2κ)"], "core_attn": core_terms(config)}
    ffn = [part for target, part in (("up", "gate_up"), ("act", "act")) if target in family.targets]
    terms = [term for target in family.targets for term in dropped.get(target, [])]
    return Formula(_less([*terms, *([_ffn(config, *ffn)] if ffn else [])]), work)


def _ops(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    family = make_policy(policy)
    assert isinstance(family, Ops)
    products, attention = selected_outputs(config, family)
    return _kept_outputs(config, products, _FUSED_OUTPUTS if attention else [], [])


def _named(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:  # noqa: ARG001
    family = make_policy(policy)
    assert isinstance(family, Named)
    products = {"qkv": "qkv", "wo": "out", "up": "up", "down": "down"}
    kept = [products[name] for name in family.config.saved if name in products]
    if "core" not in family.config.saved:
        return _kept_outputs(config, kept, [], [])
    if fused_attention(config):
        return _kept_outputs(config, kept, _FUSED_OUTPUTS, [])
    wider = 4 // element_bytes(config) if attention_in_float32(config) else 1
    return _kept_outputs(config, kept, [_times(wider, "ru")], ["Fs/2"])


def _tiled(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:
    family = make_policy(policy)
    assert isinstance(family, Tiled)
    again = family.config.loss > 1 and not family.config.linear_cross_entropy
    head = [f"Fh/{depth}"] if again else []
    if family.config.mlp == 1:
        return Formula("A", _sum(head))
    return Formula(_less([_ffn(config, "gate_up", "act")]), _sum(["Fgu", *head]))


def _assignment(config: CellConfig, policy: PolicyConfig, depth: int) -> Formula:
    family = make_policy(policy)
    assert isinstance(family, Assignment)
    parts = []
    for part, indices in family.parts(depth):
        parts.append((len(indices), FORMULAS[part.family](config, part, len(indices))))
    rest = depth - sum(count for count, _ in parts)
    mixed = _mixture([*parts, (rest, Formula("A"))], depth)
    head = [f"Fh/{depth}"] if family.config.loss > 1 else []
    return Formula(mixed.saved, _sum([mixed.work, *head]))


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
    "tiled": _tiled,
    "assignment": _assignment,
}


def _block_again(config: CellConfig, *, early_stop: bool = True) -> str:
    return "Fg - Fd + Fs" if early_stop and not config.model.dropout else "Fg + Fs"


def _kept_outputs(config: CellConfig, products: Iterable[str], core: list[str], also: list[str]) -> Formula:
    """A recomputed block that keeps these products and these terms of attention, and runs ``also``."""
    kept, up = set(products), "2φ" if config.model.family == "llama" else "φ"
    whole = 1 + len(kept & {"out", "down"})
    shares = [str(whole), *(["r(1+2κ)"] if "qkv" in kept else []), *([up] if "up" in kept else [])]
    inputs = f"u[{' + '.join(shares)}]" if len(shares) > 1 else _times(whole, "u")
    flops = {"qkv": "Fqkv", "out": "Fo", "up": "Fgu", **({"down": "Fd"} if config.model.dropout else {})}
    again = [term for name, term in flops.items() if name not in kept]
    if len(again) == len(flops):
        again = ["Fg"] if config.model.dropout else ["Fg - Fd"]
    return Formula(_sum([inputs, *core]), _sum([*again, *([] if core else ["Fs"]), *also]))


def _core_inside(config: CellConfig) -> list[str]:
    """What attention keeps beside its inputs and its output."""
    return ["LSE"] if core_terms(config) != ["C"] else ["(C - ru)"]


def _ffn(config: CellConfig, *parts: str) -> str:
    """Outputs of the MLP's first products (gate_up) and of its activation (act)."""
    each = {"gate_up": 2, "act": 2} if config.model.family == "llama" else {"gate_up": 1, "act": 1}
    return _times(sum(each[part] for part in parts), "φu")


def _masks(config: CellConfig) -> list[str]:
    return ["2D"] if config.model.dropout else []


def _mixture(parts: Iterable[tuple[int, Formula]], depth: int) -> Formula:
    """The mean over blocks of which so many are as each formula says."""
    there = [(count, formula) for count, formula in parts if count]
    if len(there) == 1:
        return there[0][1]
    saved = _sum(_times(count, formula.saved) for count, formula in there)
    work = _sum(_times(count, formula.work) for count, formula in there if formula.work != "0")
    return Formula(f"[{saved}]/{depth}", work if work == "0" else f"[{work}]/{depth}")


def _times(count: int, term: str) -> str:
    """``2φu``, ``3(A - LSE)``, ``A``."""
    if count == 1:
        return term
    outside = _BRACKETED.sub("", term)
    factor = " " not in outside and "/" not in outside and not term[0].isdigit()
    return f"{count}{term}" if factor else f"{count}({term})"


def _grouped(term: str) -> str:
    return f"({term})" if " " in term else term


def _sum(terms: Iterable[str]) -> str:
    return " + ".join(term for term in terms if term != "0") or "0"


def _less(terms: Iterable[str]) -> str:
    """``A`` without these."""
    return " - ".join(["A", *terms])

"""``modules``: parts of every block are recomputed."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suite.config.schema import CellConfig, ModelConfig
from suite.errors import MatchedNothing, UsageError
from suite.models.shape import FAMILIES
from suite.policies.base import Applied, Policy, Region
from suite.policies.entries import Entry, scope_of

if TYPE_CHECKING:
    from torch import nn

    from suite.models.decoder import Decoder

# Name of a target to the submodules of a block that it means. ``core_attn`` with eager attention is
# Megatron-LM's "selective" (Korthikanti et al. 2022, arXiv:2205.05198). The last four are a mixture's.
TARGETS = {
    "attn": ("attn",),
    "mlp": ("mlp",),
    "core_attn": ("attn.core",),
    "norms": ("attn_norm", "mlp_norm"),
    "moe": ("mlp",),
    "experts": ("mlp.experts",),
    "shared_experts": ("mlp.shared",),
    "router": ("mlp.router",),
}


class Modules(Policy):
    """Regions below the block: the module's input is kept, its inside is rebuilt.

    ``router`` saves little; ``mlp``, ``moe`` and whole blocks replay the router too. On the CPU its replay
    is bitwise the same. Where kernels may sum in another order it can choose another expert at a near tie,
    and the gradients are then wrong: the parity pass says so.
    """

    family = "modules"
    shorthand = "targets"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """``targets``: some of :data:`TARGETS`, as a list or joined by ``+``."""

        targets: Any = ()

        def __post_init__(self) -> None:
            targets = self.targets
            names = targets.split("+") if isinstance(targets, str) else list(targets)
            object.__setattr__(self, "targets", tuple(names))

        def check(self) -> None:
            """Known names, none of them inside another."""
            shown = "+".join(map(str, self.targets))
            unknown = [t for t in self.targets if t not in TARGETS]
            if unknown or not self.targets:
                raise UsageError("policy.targets", shown, f"expected some of {', '.join(TARGETS)}")
            if len(set(self.targets)) != len(self.targets):
                raise UsageError("policy.targets", shown, "names a target twice")
            for outer, inner in itertools.permutations(self.targets, 2):
                where = _where(inner, outer)
                if where:
                    raise UsageError(
                        "policy.targets", shown, f"{inner} {where} {outer}: choose one of them"
                    )

    def check(self, cell: CellConfig) -> None:
        """The model must have the targets' modules."""
        model = cell.model
        known = [target for target in TARGETS if _has(model, target)]
        for target in self.config.targets:
            if target not in known:
                there = ", ".join(known)
                raise MatchedNothing(f"policy.targets={target}: {model.name} has none; it has {there}")

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Make each target of each block a region."""
        from suite.policies.regions import checkpoint_module

        regions, entries = [], []
        for target in self.config.targets:
            paths = [path for part in TARGETS[target] for path in scope_of(blocks, part)]
            entry = Entry(target, tuple(paths))
            for path in paths:
                checkpoint_module(_submodule(model, path, target), entry, use_reentrant=False)
                regions.append(Region(path, (path,)))
            entries.append(entry)
        return Applied(tuple(regions), tuple(entries))


def _where(inner: str, outer: str) -> str:
    """``is`` or ``is inside``; empty where the targets are apart."""
    if TARGETS[inner] == TARGETS[outer]:
        return "is"
    return "is inside" if any(p.startswith(f"{q}.") for p in TARGETS[inner] for q in TARGETS[outer]) else ""


def _has(model: ModelConfig, target: str) -> bool:
    if target == "shared_experts":
        return model.n_shared_experts > 0
    return FAMILIES[model.family].routed or target not in ("moe", "experts", "router")


def _submodule(model: "Decoder", path: str, target: str) -> "nn.Module":
    try:
        return model.get_submodule(path)
    except AttributeError:
        block, _, part = path.removeprefix("blocks.").partition(".")
        there = ", ".join(name for name, _ in model.blocks[int(block)].named_modules() if name)
        missing = f"policy.targets={target}: block {block} has no {part}; it has {there}"
        raise MatchedNothing(missing) from None

"""``modules``: parts of every block are recomputed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suite.errors import MatchedNothing, UsageError
from suite.policies.base import Applied, Policy, Region
from suite.policies.entries import Entry, scope_of

if TYPE_CHECKING:
    from torch import nn

    from suite.models.decoder import Decoder

# Name of a target to the submodules of a block that it means. ``core_attn`` with eager attention is
# Megatron-LM's "selective" (Korthikanti et al. 2022, arXiv:2205.05198).
TARGETS = {
    "attn": ("attn",),
    "mlp": ("mlp",),
    "core_attn": ("attn.core",),
    "norms": ("attn_norm", "mlp_norm"),
}


class Modules(Policy):
    """Regions below the block: the module's input is kept, its inside is rebuilt."""

    family = "modules"
    shorthand = "targets"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """``targets``: some of attn, mlp, core_attn and norms, as a list or joined by ``+``."""

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
            if {"attn", "core_attn"} <= set(self.targets):
                raise UsageError("policy.targets", shown, "core_attn is inside attn: choose one of them")

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


def _submodule(model: "Decoder", path: str, target: str) -> "nn.Module":
    try:
        return model.get_submodule(path)
    except AttributeError:
        block, _, part = path.removeprefix("blocks.").partition(".")
        there = ", ".join(name for name, _ in model.blocks[int(block)].named_modules() if name)
        missing = f"policy.targets={target}: block {block} has no {part}; it has {there}"
        raise MatchedNothing(missing) from None

"""``modules``: parts of every block are recomputed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suite.errors import MatchedNothing, UsageError
from suite.policies.base import Applied, Policy

if TYPE_CHECKING:
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

    def apply(self, model: "Decoder") -> Applied:
        """Make each target of each block a region."""
        from suite.policies.regions import checkpoint_module

        regions = []
        for index, block in enumerate(model.blocks):
            for target in self.config.targets:
                for path in TARGETS[target]:
                    try:
                        module = block.get_submodule(path)
                    except AttributeError:
                        there = ", ".join(name for name, _ in block.named_modules() if name)
                        raise MatchedNothing(
                            f"policy.targets={target}: block {index} has no {path}; it has {there}"
                        ) from None
                    checkpoint_module(module, use_reentrant=False)
                    regions.append(f"blocks.{index}.{path}")
        return Applied(tuple(regions))

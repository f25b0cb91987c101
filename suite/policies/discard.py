"""``discard``: outputs that only a matrix product reads are dropped and rebuilt without any product."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from suite.errors import MatchedNothing
from suite.policies.base import Applied, Policy, Region
from suite.policies.entries import Entry
from suite.policies.targets import check_targets, target_names

if TYPE_CHECKING:
    from suite.models.decoder import Decoder

# Target to (producer, consumer) pairs of submodules of a block. Which of them a block has depends on its
# family: a mixture of experts has its products elsewhere, and its norm has more than one reader.
PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "norm": (("attn_norm", "attn.qkv"), ("mlp_norm", "mlp.up"), ("mlp_norm", "mlp.gate_up")),
    "act": (
        ("mlp.act", "mlp.down"),
        ("mlp.experts.act", "mlp.experts.down"),
        ("mlp.shared.act", "mlp.shared.down"),
    ),
    "core_attn": (("attn.core", "attn.out"),),
}


class Discard(Policy):
    """Output-discarding recomputation, which Megatron-LM has with autograd functions of its own.

    A region is a cheap operator *and the matrix product that reads its output*. The product's backward
    needs its input, which is the discarded output; the replay rebuilds that and stops there, so no product
    runs again. ``core_attn`` does run attention again.
    """

    family = "discard"
    shorthand = "targets"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """``targets``: some of norm, act and core_attn, as a list or joined by ``+``, or ``all``."""

        targets: Any = "all"
        known: ClassVar[tuple[str, ...]] = tuple(PAIRS)

        def __post_init__(self) -> None:
            object.__setattr__(self, "targets", target_names(self.targets, self.known))

        def check(self) -> None:
            """Known names, each once."""
            check_targets(self.targets, self.known)

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets by name."""
        targets = self.config.targets
        return tuple(PAIRS) if targets == "all" else targets

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Defer each producer into the product that reads it."""
        from suite.policies.regions import checkpoint_deferred

        regions, entries = [], []
        for target in self.targets:
            scope: list[str] = []
            entry = Entry(target)
            for index in blocks:
                modules = dict(model.blocks[index].named_modules())
                pairs = [pair for pair in PAIRS[target] if modules.keys() >= set(pair)]
                if not pairs:
                    there = ", ".join(name for name in modules if name)
                    raise MatchedNothing(
                        f"policy.targets={target}: block {index} has none of its parts; it has {there}"
                    )
                for producer, consumer in pairs:
                    checkpoint_deferred(modules[producer], modules[consumer], entry, use_reentrant=False)
                    inside = (f"blocks.{index}.{producer}", f"blocks.{index}.{consumer}")
                    regions.append(Region("+".join(inside), inside))
                    scope.append(inside[0])
            entry.scope = tuple(scope)
            entries.append(entry)
        return Applied(tuple(regions), tuple(entries), "policy.targets")

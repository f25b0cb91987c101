"""``rebuild``: chosen tensors are rebuilt one by one when backward asks for them, and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from suite.config.schema import CellConfig
from suite.errors import MatchedNothing, Unsupported
from suite.policies.base import Applied, Policy
from suite.policies.entries import Entry, scope_of
from suite.policies.targets import check_targets, target_names

if TYPE_CHECKING:
    from suite.models.decoder import Decoder

# Target to the submodules of a block that make its tensors. A block has those of its family.
PRODUCERS: dict[str, tuple[str, ...]] = {
    "norm": ("attn_norm", "mlp_norm"),
    "qkv": ("attn.qkv", "attn.rope"),
    "core_attn": ("attn.core",),
    "up": ("mlp.up", "mlp.gate_up", "mlp.experts.gate_up", "mlp.shared.gate_up"),
    "act": ("mlp.act", "mlp.experts.act", "mlp.shared.act"),
}


class Rebuild(Policy):
    """Lazy rebuild by saved-tensor hooks: in place of a tensor, the function that makes it is kept.

    ``norm+act`` costs no product; ``qkv``, ``core_attn`` and ``up`` replay their own and no other. A
    chosen tensor that is made from another chosen one is rebuilt through it. No region is replayed in
    order and no dispatch mode is active, so that the host's cost is that of a hook a tensor.
    """

    family = "rebuild"
    compiles = False
    shorthand = "targets"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """``targets``: some of norm, qkv, core_attn, up, act, as a list or joined by ``+``, or ``all``."""

        targets: Any = ("norm", "act")
        known: ClassVar[tuple[str, ...]] = tuple(PRODUCERS)

        def __post_init__(self) -> None:
            object.__setattr__(self, "targets", target_names(self.targets, self.known))

        def check(self) -> None:
            """Known names, each once."""
            check_targets(self.targets, self.known)

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets by name."""
        targets = self.config.targets
        return tuple(PRODUCERS) if targets == "all" else targets

    def check(self, cell: CellConfig) -> None:
        """Without a fused kernel attention may keep copies of q, k and v, which are its own to rebuild."""
        if "qkv" not in self.targets or "core_attn" in self.targets:
            return
        eager = cell.attention == "eager"
        fused = not eager and (cell.model.dropout == 0 or cell.device != "cpu")
        if not fused and (cell.batch_size > 1 or (not eager and cell.precision != "fp32")):
            raise Unsupported(
                "policy.targets=qkv: attention keeps copies of its inputs here, nothing keeps qkv; "
                "add core_attn to the targets, or use attention=sdpa without dropout"
            )

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Make the targets' modules producers."""
        from suite.policies.lazy import LazyBlock

        entries = {target: Entry(target, scope=()) for target in self.targets}
        for index in blocks:
            block = model.blocks[index]
            modules = dict(block.named_modules())
            lazy = LazyBlock(block)
            for target, entry in entries.items():
                paths = [path for path in PRODUCERS[target] if path in modules]
                if not paths:
                    there = ", ".join(name for name in modules if name)
                    raise MatchedNothing(
                        f"policy.targets={target}: block {index} has none of its parts; it has {there}"
                    )
                for path in paths:
                    lazy.produce(
                        modules[path],
                        entry,
                        draws=target == "core_attn" and model.config.dropout > 0,
                        # A mixture gathers rows of its norm's output before any product casts them.
                        cast=target == "norm" and (path == "attn_norm" or "mlp.router" not in modules),
                    )
                    entry.scope += scope_of([index], path)
        return Applied((), tuple(entries.values()), "policy.targets")

"""``ops``: every block is recomputed but for the outputs of chosen operators."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suite.config.schema import CellConfig
from suite.errors import MatchedNothing, Unsupported, UsageError
from suite.policies.base import Applied, Policy

if TYPE_CHECKING:
    from suite.models.decoder import Decoder

# Fused attention under every name that a device gives it. The CPU's own is in no public save list.
ATTENTION_OPERATORS = frozenset(
    {
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_fused_attention_overrideable",
    }
)
# A linear layer dispatches as any of these, depending on its bias, the rank of its input and the mode.
MATMUL_OPERATORS = frozenset({"mm", "addmm", "linear", "_scaled_mm"})
EVERY_SECOND = "every_second_mm"
PRESETS = {
    "attn": ATTENTION_OPERATORS,
    "mm": MATMUL_OPERATORS,
    "mm+attn": MATMUL_OPERATORS | ATTENTION_OPERATORS,
    EVERY_SECOND: MATMUL_OPERATORS | ATTENTION_OPERATORS,
}


def operator_name(text: str) -> str:
    """``mm`` from any of ``mm``, ``aten.mm``, ``aten::mm`` and ``aten.mm.default``."""
    name = text.replace("::", ".").removeprefix("torch.ops.").removeprefix("aten.")
    return name.split(".", maxsplit=1)[0]


class Ops(Policy):
    """Selective recomputation by operator (torch's selective activation checkpointing).

    ``every_second_mm`` is torchtitan's rule: attention outputs and every second matrix product are kept,
    counted afresh in each block.
    """

    family = "ops"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """``save``: a preset (attn, mm, mm+attn, every_second_mm) or a list of aten operators."""

        save: Any = None

        def __post_init__(self) -> None:
            if isinstance(self.save, list | tuple):
                names = tuple(operator_name(str(name)) for name in self.save)
                object.__setattr__(self, "save", names)

        def check(self) -> None:
            """A preset, or at least one operator."""
            if self.save in PRESETS or (isinstance(self.save, tuple) and self.save):
                return
            allowed = f"expected one of {', '.join(PRESETS)} or a list such as [aten.mm,aten.bmm]"
            raise UsageError("policy.save", self.save, allowed)

    def check(self, cell: CellConfig) -> None:
        """``attn`` alone needs a fused attention operator to keep."""
        if self.config.save != "attn":
            return
        if cell.attention == "eager":
            raise Unsupported(
                "policy.save=attn: attention=eager runs no fused attention operator; "
                "use attention=sdpa, or policy.save=mm+attn"
            )
        if cell.device == "cpu" and cell.model.dropout > 0:
            raise Unsupported(
                "policy.save=attn: sdpa with dropout runs as plain matrix products on the CPU; "
                "use model.dropout=0, or policy.save=mm+attn"
            )

    def apply(self, model: "Decoder") -> Applied:
        """Make every block a region that keeps the chosen outputs."""
        from suite.policies.regions import checkpoint_module
        from suite.policies.selective import Selection

        save = self.config.save
        selection = Selection(
            PRESETS[save] if isinstance(save, str) else frozenset(save),
            every_second=MATMUL_OPERATORS if save == EVERY_SECOND else frozenset(),
        )
        for block in model.blocks:
            checkpoint_module(block, use_reentrant=False, context_fn=selection.contexts)

        def verify() -> None:
            if not selection.hits:
                ran = ", ".join(sorted(selection.ran)) or "nothing: no forward has run yet"
                raise MatchedNothing(f"policy.save={_shown(save)}: no such operator ran; these did: {ran}")

        return Applied(tuple(f"blocks.{i}" for i in range(len(model.blocks))), verify)


def _shown(save: str | tuple[str, ...]) -> str:
    return save if isinstance(save, str) else "+".join(save)

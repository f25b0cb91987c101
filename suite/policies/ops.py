"""``ops``: every block is recomputed but for the outputs of chosen operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suite.config.schema import CellConfig
from suite.errors import Unsupported, UsageError
from suite.policies.base import Applied, Policy, Region
from suite.policies.entries import Entry, operator_name, scope_of

if TYPE_CHECKING:
    from suite.models.decoder import Decoder
    from suite.policies.selective import Selection

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
# A linear layer dispatches as any of these, depending on its bias, the rank of its input and the mode; all
# experts' layers together as the last.
MATMUL_OPERATORS = frozenset({"mm", "addmm", "linear", "_scaled_mm", "recompute_suite::expert_mm"})
# Either of these in a list means its whole group: which member runs is the device's and the layer's doing.
GROUPS = {"mm": MATMUL_OPERATORS, "attn": ATTENTION_OPERATORS}
EVERY_SECOND = "every_second_mm"
# Preset to the groups it keeps. Nothing in backward reads the output of a block's last product, so that
# keeping it only costs: the presets that end in ``-down`` leave it out, and replay no product either.
PRESETS = {
    "attn": ("attn",),
    "mm": ("mm",),
    "mm+attn": ("mm", "attn"),
    "mm-down": ("mm",),
    "mm+attn-down": ("mm", "attn"),
    EVERY_SECOND: ("mm", "attn"),
}
# Backward does read what routed experts return: the router's weights multiply it.
_DOWN = ("mlp.down", "mlp.shared.down")


class Ops(Policy):
    """Selective recomputation by operator (torch's selective activation checkpointing).

    ``every_second_mm`` is torchtitan's rule: attention outputs and every second matrix product are kept,
    counted afresh in each block.
    """

    family = "ops"
    shorthand = "save"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """``save``: a preset, or a list of aten operators; see :data:`PRESETS` and :data:`GROUPS`."""

        save: Any = None

        def __post_init__(self) -> None:
            if isinstance(self.save, list | tuple):
                names = dict.fromkeys(group_of(operator_name(str(name))) for name in self.save)
                object.__setattr__(self, "save", tuple(names))

        def check(self) -> None:
            """A preset, or at least one operator."""
            if self.save in PRESETS or (isinstance(self.save, tuple) and self.save):
                return
            allowed = f"expected one of {', '.join(PRESETS)} or a list such as [aten.mm,aten.bmm]"
            raise UsageError("policy.save", self.save, allowed)

    @property
    def names(self) -> tuple[str, ...]:
        """The groups and operators that are kept."""
        save = self.config.save
        return PRESETS[save] if isinstance(save, str) else save

    @property
    def _needs_marks(self) -> bool:
        """Whether the same operator is kept in one module and not in another."""
        return isinstance(self.config.save, str) and self.config.save.endswith("-down")

    def check(self, cell: CellConfig) -> None:
        """``attn`` alone needs a fused attention operator to keep."""
        check_attention("policy.save", self.names, cell)

    def check_compile(self, cell: CellConfig) -> None:
        """Modules cannot be told apart where the rule is asked: once, while the graph is traced."""
        if cell.compile != "none" and self._needs_marks:
            save, without = self.config.save, self.config.save.removesuffix("-down")
            raise Unsupported(
                f"compile={cell.compile}: policy.save={save} tells modules apart in Python, which no "
                f"compiled graph runs; use compile=none, policy.save={without} or policy=budget"
            )

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Make every block a region that keeps the chosen outputs."""
        from suite.policies.regions import checkpoint_module

        entries, selection = self.select(model, blocks)
        region = Entry("blocks", scope_of(blocks))
        for index in blocks:
            checkpoint_module(
                model.blocks[index], region, use_reentrant=False, context_fn=selection.context_fn
            )
        regions = tuple(map(Region.of_block, blocks))
        return Applied(regions, tuple(entries), "policy.save", lambda: selection.ran)

    def select(self, model: "Decoder", blocks: Sequence[int]) -> "tuple[list[Entry], Selection]":
        """The rules, which will see what runs in ``blocks``, as entries and as what regions ask."""
        from suite.policies.selective import OperatorRule, Selection

        save, scope = self.config.save, scope_of(blocks)
        preset = isinstance(save, str)
        entries = [Entry(n, scope, GROUPS.get(n, frozenset({n})), required=not preset) for n in self.names]
        rules = [
            OperatorRule(
                entry,
                every_second=save == EVERY_SECOND and entry.name == "mm",
                except_in="down" if self._needs_marks else "",
            )
            for entry in entries
        ]
        selection = Selection(rules)
        for index in blocks:
            for path, module in model.blocks[index].named_modules():
                if self._needs_marks and path in _DOWN:
                    selection.mark(module, "down")
        return entries, selection


def check_attention(key: str, names: Sequence[str], cell: CellConfig) -> None:
    """Raise Unsupported where only fused attention is to be kept, by the option ``key``, and none runs."""
    if tuple(names) != ("attn",):
        return
    if cell.attention == "eager":
        raise Unsupported(
            f"{key}=attn: attention=eager runs no fused attention operator; "
            f"use attention=sdpa, or {key}=mm+attn"
        )
    if cell.device == "cpu" and cell.model.dropout > 0:
        raise Unsupported(
            f"{key}=attn: sdpa with dropout runs as plain matrix products on the CPU; "
            f"use model.dropout=0, or {key}=mm+attn"
        )


def group_of(operator: str) -> str:
    """The name of the group that ``operator`` belongs to, or its own."""
    return next((name for name, group in GROUPS.items() if operator in group), operator)

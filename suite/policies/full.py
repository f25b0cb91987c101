"""``full``: each block keeps its input and is recomputed whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suite.config.schema import CellConfig
from suite.errors import Unsupported
from suite.policies.base import Applied, Policy, Region, require_bool
from suite.policies.entries import Entry, scope_of

if TYPE_CHECKING:
    from suite.models.decoder import Decoder


class Full(Policy):
    """Full recomputation, block by block (Chen et al. 2016, arXiv:1604.06174, with one block a segment)."""

    family = "full"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """Options of torch's ``checkpoint``.

        Attributes:
            early_stop: end the replay when the last tensor that backward needs is rebuilt. The
                reentrant mode has no early stop and always replays the whole block.
            use_reentrant: the older mode; sees only top-level tensors and needs an input with grad.
            preserve_rng_state: replay draws the same random numbers. Off, dropout masks differ between
                forward and replay: gradients are wrong and the parity pass says so.
        """

        early_stop: bool = True
        use_reentrant: bool = False
        preserve_rng_state: bool = True

        def check(self) -> None:
            """All three are flags."""
            for name in ("early_stop", "use_reentrant", "preserve_rng_state"):
                require_bool(f"policy.{name}", getattr(self, name))

    def check_compile(self, cell: CellConfig) -> None:
        """A compiled graph knows one way to recompute: these options would be ignored in silence."""
        if cell.compile == "none":
            return
        for name, default in (("early_stop", True), ("use_reentrant", False), ("preserve_rng_state", True)):
            value = getattr(self.config, name)
            if value != default:
                shown, usual = str(value).lower(), str(default).lower()
                raise Unsupported(
                    f"policy.{name}={shown}: has no effect on compiled code; use compile=none, "
                    f"or policy.{name}={usual}"
                )

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Make every block a region of its own."""
        from suite.policies.regions import checkpoint_module

        options: dict[str, bool] = {
            "use_reentrant": self.config.use_reentrant,
            "preserve_rng_state": self.config.preserve_rng_state,
        }
        if not self.config.use_reentrant:
            options["early_stop"] = self.config.early_stop
        entry = Entry("blocks", scope_of(blocks))
        for index in blocks:
            checkpoint_module(model.blocks[index], entry, **options)
        return Applied(tuple(map(Region.of_block, blocks)), (entry,))

"""``compressed``: what a policy keeps of its blocks is kept in eight bits an element."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suite.config.schema import CellConfig
from suite.errors import Unsupported, UsageError
from suite.policies.base import Applied, Policy, Region, Tolerance, require_count
from suite.policies.entries import Entry, scope_of
from suite.units import parse_bytes

if TYPE_CHECKING:
    from suite.models.decoder import Decoder

WHAT = ("inputs", "saved")
# Format to the relative rounding of an element: half a unit of 3 and of 2 mantissa bits.
ROUNDING = {"e4m3": 2.0**-4, "e5m2": 2.0**-3}
SCALES = ("tensor", "row")


class Compressed(Policy):
    """Activations in float8 (E4M3 and E5M2 of Micikevicius et al. 2022, arXiv:2209.05433), scaled.

    The forward is that of ``none``, and so is the loss; backward reads rounded tensors.
    """

    family = "compressed"
    shorthand = "what"
    compiles = False

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """What is kept in eight bits, and how.

        Attributes:
            what: ``inputs``: blocks are recomputed, as under ``full``, from rounded inputs. ``saved``: the
                activations that autograd keeps; nothing is recomputed. Masks, statistics and parameters
                stay exact.
            dtype: ``e4m3`` has the smaller rounding, ``e5m2`` the wider range.
            scale: one for each ``tensor``, or for each ``row`` of the last dimension: a row with one large
                element does not push the others below the format's range.
            min_bytes: smaller storages stay as they are. Below a page nothing is worth two more launches.
        """

        what: str = "inputs"
        dtype: str = "e4m3"
        scale: str = "row"
        min_bytes: Any = 4096

        def __post_init__(self) -> None:
            if isinstance(self.min_bytes, str):
                object.__setattr__(self, "min_bytes", parse_bytes(self.min_bytes, "policy.min_bytes"))

        def check(self) -> None:
            """Known words, and a whole number of bytes."""
            for name, known in (("what", WHAT), ("dtype", tuple(ROUNDING)), ("scale", SCALES)):
                value = getattr(self, name)
                if value not in known:
                    raise UsageError(f"policy.{name}", value, f"expected one of {', '.join(known)}")
            require_count("policy.min_bytes", self.min_bytes)

    def check(self, cell: CellConfig) -> None:
        """A router must see in the replay what it saw in the forward."""
        if self.config.what == "inputs" and cell.model.family == "moe":
            raise Unsupported(
                "policy.what=inputs: a router replayed from rounded inputs may send tokens elsewhere, "
                "and gradients to other weights; use policy.what=saved"
            )

    def tolerance(self, cell: CellConfig) -> Tolerance | None:  # noqa: ARG002
        """Twice the rounding of an element, whatever the depth; the loss is exact.

        A weight's gradient is a sum of products of a gradient and a kept element: if each of these is off
        by at most u, then so is the sum, in first order and unless its terms cancel. What the gradient
        itself brings along from the blocks after is as large again: those blocks' errors are
        independent and add to a stream that mostly passes them by. 0.98 u was the most that was seen,
        in 24 blocks.
        """
        rounding = ROUNDING[self.config.dtype]
        reason = (
            f"backward reads {self.config.dtype}, whose elements are rounded by up to {rounding:g}: "
            "once in the gradient's own operand, once in the blocks after it"
        )
        return Tolerance(2 * rounding, reason, exact_forward=True)

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Make the regions, and keep what they or the blocks keep in eight bits."""
        from suite.policies.float8 import FORMATS, Float8Copies
        from suite.policies.regions import checkpoint_module

        config = self.config
        copies = Float8Copies(
            next(model.parameters()).device,
            config.min_bytes,
            FORMATS[config.dtype],
            per_row=config.scale == "row",
        )
        entry, region = Entry(config.what, scope_of(blocks)), Entry("blocks", scope_of(blocks))
        recomputed = config.what == "inputs"
        for index in blocks:
            if recomputed:
                checkpoint_module(model.blocks[index], region, use_reentrant=False)
            copies.keep_for(model.blocks[index], entry)
        regions = tuple(map(Region.of_block, blocks)) if recomputed else ()
        return Applied(regions, (entry,), "policy.what", copies.left)

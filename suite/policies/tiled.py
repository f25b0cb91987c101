"""``tiled``: MLP and head work tile by tile along the sequence, each tile recomputed in backward."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suite.config.schema import CellConfig
from suite.errors import Unsupported, UsageError
from suite.policies.base import Applied, Policy, Region, Tolerance, require_bool
from suite.policies.entries import Entry, scope_of

if TYPE_CHECKING:
    from suite.models.decoder import Decoder

# Unit roundoff of what products are rounded to: 24 bits of float32, 8 of bfloat16.
_ROUNDOFF = {"fp32": 2.0**-24, "bf16-mixed": 2.0**-9, "bf16-true": 2.0**-9}


class Tiled(Policy):
    """Smaller transients instead of fewer saved tensors: the peak is often the head or one MLP.

    The MLP keeps its input and, while a tile is in flight, a tile's inside. The loss never holds more than
    one chunk of logits, forward or backward (Liger Kernel and torchtune chunk it so; Arctic's ALST tiles
    both). Sums over tiles round differently from one product, so the step is not bitwise that of ``none``.
    """

    family = "tiled"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """How many tiles; 1 leaves that part as it is.

        Attributes:
            mlp: tiles of each block's MLP.
            loss: chunks of head and loss.
            linear_cross_entropy: torch's own chunked head and loss, in place of recomputed chunks. It
                computes the gradients in forward, so that no product runs again.
        """

        mlp: int = 4
        loss: int = 8
        linear_cross_entropy: bool = False

        def check(self) -> None:
            """At least one part in two tiles or more."""
            for name in ("mlp", "loss"):
                value = getattr(self, name)
                if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                    raise UsageError(f"policy.{name}", value, "expected a whole number >= 1")
            require_bool("policy.linear_cross_entropy", self.linear_cross_entropy)
            if self.mlp == self.loss == 1:
                raise UsageError("policy", "tiled", "set policy.mlp or policy.loss to 2 or more")
            if self.linear_cross_entropy and self.loss == 1:
                raise UsageError("policy.linear_cross_entropy", True, "set policy.loss to 2 chunks or more")

    def check(self, cell: CellConfig) -> None:
        """Tiles need tokens, and an MLP whose tokens do not depend on each other."""
        for name in ("mlp", "loss"):
            if getattr(self.config, name) > cell.seq_len:
                tiles = getattr(self.config, name)
                raise Unsupported(f"policy.{name}={tiles}: the sequence has only {cell.seq_len} tokens")
        if self.config.mlp > 1 and cell.model.family == "moe":
            raise Unsupported(
                f"policy.mlp={self.config.mlp}: a mixture's auxiliary loss is one over all tokens; "
                "use policy.mlp=1"
            )

    def tolerance(self, cell: CellConfig) -> Tolerance | None:
        """Sums over k tiles are rounded in another order: errors that grow as a random walk of k steps.

        The factor of 16 is for what the blocks before make of them; some 12 were seen on small models.
        """
        tiles = max(self.config.mlp, self.config.loss)
        relative = 16 * math.sqrt(tiles) * _ROUNDOFF[cell.precision]
        return Tolerance(relative, f"sums over {tiles} tiles in another order: 16 sqrt({tiles}) roundoffs")

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Tile the MLPs of ``blocks``, and the loss where it is asked for."""
        from suite.policies.tiles import tile_loss, tile_mlp

        regions, entries = [], []
        if self.config.mlp > 1:
            scope = scope_of(blocks, "mlp")
            entry = Entry("mlp", scope)
            for index in blocks:
                tile_mlp(model.get_submodule(f"blocks.{index}.mlp"), self.config.mlp, entry)
            regions += [Region(path, (path,)) for path in scope]
            entries.append(entry)
        if self.config.loss > 1:
            entry = loss_entry(self.config.loss)
            tile_loss(model, self.config.loss, fused=self.config.linear_cross_entropy)
            regions.append(Region("head", ("head",)))
            entries.append(entry)
        return Applied(tuple(regions), tuple(entries))


def loss_entry(chunks: int) -> Entry:
    """The rule of a head in ``chunks``, which are hits already: they run after hits are first looked at."""
    return Entry("loss", ("head",), hits=chunks)

"""Tiles along the sequence. Imports torch: used by ``apply`` only."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from suite.models.loss import IGNORED
from suite.policies.entries import Entry
from suite.policies.traced import hit

if TYPE_CHECKING:
    from suite.models.decoder import Decoder


def tile_mlp(mlp: nn.Module, tiles: int, entry: Entry) -> None:
    """Run the products of ``mlp`` on one run of tokens after the other.

    Its dropout stays whole: tile by tile it would draw other masks than the model does without the policy.
    """
    inner: Any = mlp.project

    def forward(x: Tensor) -> Tensor:
        outputs = []
        for part in x.chunk(tiles, dim=1):
            with hit(entry):
                outputs.append(checkpoint(inner, part, use_reentrant=False))
        return torch.cat(outputs, dim=1)

    mlp.project = forward  # type: ignore[assignment]


def tile_loss(model: "Decoder", chunks: int, *, fused: bool) -> None:
    """Head and loss on one run of tokens after the other, with torch's own operator if ``fused``."""
    chunked = _fused_loss if fused else _recomputed_loss

    def loss(
        tokens: Tensor, targets: Tensor, documents: Tensor | None, phase: Callable[[str], None]
    ) -> Tensor:
        hidden = model.hidden(tokens, documents)
        phase("loss")
        return chunked(model.head, hidden, targets, chunks)

    model.loss = loss  # type: ignore[method-assign]


def _recomputed_loss(head: nn.Module, hidden: Tensor, targets: Tensor, chunks: int) -> Tensor:
    def part(x: Tensor, y: Tensor) -> Tensor:
        logits = head(x).flatten(0, 1).float()
        return F.cross_entropy(logits, y.flatten(), ignore_index=IGNORED, reduction="sum")

    count = (targets != IGNORED).sum()
    total = torch.zeros((), device=hidden.device)
    for x, y in zip(hidden.chunk(chunks, dim=1), targets.chunk(chunks, dim=1), strict=True):
        total = total + checkpoint(part, x, y, use_reentrant=False)
    return total / count


def _fused_loss(head: nn.Module, hidden: Tensor, targets: Tensor, chunks: int) -> Tensor:
    assert isinstance(head, nn.Linear)
    rows = targets.numel()
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=-(-rows // chunks))
    return F.linear_cross_entropy(
        hidden.flatten(0, 1), head.weight, targets.flatten(), ignore_index=IGNORED, options=options
    ).float()

"""Checkpointed regions, the one mechanism under several families. Imports torch: used by ``apply`` only."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from suite.models.decoder import BlockContext, Decoder


def checkpoint_module(module: nn.Module, **options: Any) -> None:
    """Recompute ``module``'s forward in backward; ``options`` are those of torch's ``checkpoint``.

    The instance's ``forward`` is replaced rather than the module wrapped: parameter names, the state
    dict and ``isinstance`` stay, and hooks that users put on the module run once per step, not again
    in the replay.
    """
    inner = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(inner, *args, **options, **kwargs)

    module.forward = forward


def checkpoint_spans(model: "Decoder", spans: Sequence[range], **options: Any) -> None:
    """Run the blocks of each span of indices as one region; the spans cover the trunk in order."""
    blocks = list(model.blocks)

    def run(span: range) -> Callable[..., torch.Tensor]:
        def segment(x: torch.Tensor, context: "BlockContext") -> torch.Tensor:
            for index in span:
                x = blocks[index](x, context)
            return x

        return segment

    segments = [run(span) for span in spans]

    def run_blocks(x: torch.Tensor, context: "BlockContext") -> torch.Tensor:
        for segment in segments:
            x = checkpoint(segment, x, context, **options)
        return x

    model.run_blocks = run_blocks  # type: ignore[method-assign]

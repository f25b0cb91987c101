"""The differentiable part of a step."""

from collections.abc import Callable

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from suite.training.data import IGNORED, Batch


def model_loss(model: nn.Module, batch: Batch, phase: Callable[[str], None]) -> Tensor:
    """Mean cross entropy over the targets that count, in float32, whatever the logits' dtype.

    ``phase`` is called with ``forward`` before the model and with ``loss`` after the logits exist.
    """
    phase("forward")
    logits: Tensor = model(batch.tokens, batch.documents)
    phase("loss")
    return F.cross_entropy(logits.flatten(0, 1).float(), batch.targets.flatten(), ignore_index=IGNORED)

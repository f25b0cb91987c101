"""The differentiable part of a step."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from suite.training.data import Batch

if TYPE_CHECKING:
    from suite.models.decoder import Decoder


def model_loss(model: "Decoder", batch: Batch, phase: Callable[[str], None]) -> Tensor:
    """The loss of ``batch``, a float32 scalar.

    ``phase`` is called with ``forward`` before the model and with ``loss`` when it leaves the trunk for
    the loss: after the logits exist, or before where the policy computes them in chunks.
    """
    phase("forward")
    return model.loss(batch.tokens, batch.targets, batch.documents, phase)

"""The training loss of a decoder."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

# A target that does not count: the first token of the next document, say. torch's own default.
IGNORED = -100


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy over the targets that count, in float32, whatever the logits' dtype.

    Args:
        logits: (b, s, vocab_size).
        targets: (b, s), int64, or :data:`IGNORED`.
    """
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED)

"""Layers that the decoder initialises as a whole, and the embedding."""

from torch import Tensor, nn


class DrawnByDecoder:
    """A layer whose ``weight`` the decoder draws, as it draws those of all the others."""

    weight: Tensor


class Linear(nn.Linear, DrawnByDecoder):
    """A linear layer that leaves its weights for the decoder to draw, rather than drawing them twice."""

    def reset_parameters(self) -> None:
        """Nothing: see :meth:`suite.models.decoder.Decoder`."""


class _Table(nn.Embedding, DrawnByDecoder):
    """A lookup table whose rows the decoder draws."""

    def reset_parameters(self) -> None:
        """Nothing: see :meth:`suite.models.decoder.Decoder`."""


class Embedding(nn.Module):
    """Token embedding, plus learned positions where ``n_positions`` > 0, then dropout."""

    def __init__(self, vocab_size: int, d_model: int, *, n_positions: int, dropout: float) -> None:
        super().__init__()
        self.token = _Table(vocab_size, d_model)
        self.position = _Table(n_positions, d_model) if n_positions else None
        self.dropout = nn.Dropout(dropout) if dropout else None

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Embed ``tokens`` (b, s) at ``positions`` (1 or b, s): (b, s, d_model)."""
        x: Tensor = self.token(tokens)
        if self.position is not None:
            x = x + self.position(positions)
        if self.dropout is not None:
            x = self.dropout(x)
        return x

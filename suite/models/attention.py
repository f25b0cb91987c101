"""Causal self-attention with grouped queries, and the kernels that compute its core.

:data:`KERNELS` is named as ``attention`` is in the configuration. Every kernel has one signature.
"""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from suite.config.schema import ModelConfig
from suite.models.layers import Linear
from suite.models.rope import Rope
from suite.models.shape import FAMILIES, head_dim


class EagerAttention(nn.Module):
    """Plain matrix products and a softmax: intermediates of size s^2 exist, as before fused kernels."""

    needs_mask: ClassVar[bool] = True

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout) if dropout else None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Attend: q (b, h, s, d), k and v (b, kv, s, d), mask as in BlockContext; returns (b, s, h d)."""
        b, h, s, d = q.shape
        kv = k.shape[1]
        # The queries of one key-value head are stacked along s, so that k and v are never repeated.
        grouped = (q / math.sqrt(d)).reshape(b, kv, h // kv * s, d)
        scores = (grouped @ k.transpose(-2, -1)).view(b, h, s, s)
        if mask is not None:
            # where keeps the mask alone for backward, and all blocks share it.
            scores = torch.where(mask, scores, -math.inf)
        weights = scores.softmax(dim=-1)
        if self.dropout is not None:
            weights = self.dropout(weights)
        out: Tensor = weights.to(v.dtype).view(b, kv, h // kv * s, s) @ v
        return merge_heads(out.view(b, h, s, d))


class SdpaAttention(nn.Module):
    """torch's fused attention, with the backend that torch chooses for the device and the inputs."""

    needs_mask: ClassVar[bool] = False

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Attend: q (b, h, s, d), k and v (b, kv, s, d), mask as in BlockContext; returns (b, s, h d)."""
        out = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=mask is None,
            enable_gqa=k.shape[1] != q.shape[1],
        )
        return merge_heads(out)


class FlashAttention(SdpaAttention):
    """The flash backend or an error, never another one in its place."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """As :meth:`SdpaAttention.forward`. The choice is made in here, so that a replay makes it too."""
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return super().forward(q, k, v, mask)


KERNELS: dict[str, type[EagerAttention | SdpaAttention]] = {
    "eager": EagerAttention,
    "sdpa": SdpaAttention,
    "flash": FlashAttention,
}


class Attention(nn.Module):
    """Fused query-key-value product, optional RoPE, the kernel (``core``), output product, dropout."""

    def __init__(self, config: ModelConfig, kernel: str, *, bias: bool) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads = config.n_heads, config.n_kv_heads
        self.head_dim = head_dim(config)
        width = self.n_heads * self.head_dim
        self.qkv = Linear(config.d_model, width + 2 * self.n_kv_heads * self.head_dim, bias=bias)
        self.rope = None if FAMILIES[config.family].learned_positions else Rope()
        self.core = KERNELS[kernel](config.dropout)
        self.out = Linear(width, config.d_model, bias=bias)
        self.dropout = nn.Dropout(config.dropout) if config.dropout else None

    def forward(self, x: Tensor, cos: Tensor | None, sin: Tensor | None, mask: Tensor | None) -> Tensor:
        """(b, s, d_model) to the same shape; ``cos``, ``sin`` and ``mask`` as in BlockContext."""
        b, s, _ = x.shape
        qkv = self.qkv(x).view(b, s, -1, self.head_dim)
        qk, v = qkv.split((self.n_heads + self.n_kv_heads, self.n_kv_heads), dim=2)
        if self.rope is not None:
            qk, v = self.rope(qk, v, cos, sin)
        q, k = qk.split((self.n_heads, self.n_kv_heads), dim=2)
        mixed = self.core(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask)
        out: Tensor = self.out(mixed)
        return out if self.dropout is None else self.dropout(out)


def merge_heads(mixed: Tensor) -> Tensor:
    """(b, h, s, d) to (b, s, h d); a copy unless the kernel wrote it in that order."""
    return mixed.transpose(1, 2).flatten(2)


def causal_mask(seq_len: int, documents: Tensor | None, device: torch.device) -> Tensor:
    """True where a query (row) may attend to a key (column).

    Returns:
        (s, s), or (b, 1, s, s) block-diagonal by ``documents`` (b, s).
    """
    causal = torch.ones(seq_len, seq_len, dtype=torch.bool, device=device).tril()
    if documents is None:
        return causal
    return (documents[:, None, :, None] == documents[:, None, None, :]) & causal

"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864), in the half-split layout of Llama."""

import torch
from torch import Tensor, nn


def rotation_tables(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of ``position * theta^(-2i / head_dim)``.

    Args:
        positions: (1 or b, s), integers.
        head_dim: even.
        theta: base of the geometric series of wavelengths.

    Returns:
        Two tensors of (1 or b, s, 1, head_dim / 2), float32 whatever the default dtype: at long
        sequences a bfloat16 angle is off by whole radians.
    """
    exponents = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angles = positions[..., None].to(torch.float32) * theta**-exponents
    return angles.cos()[:, :, None], angles.sin()[:, :, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i + head_dim/2}) of ``x`` (b, s, heads, head_dim) by its position's angle.

    Computed in float32, returned in the dtype of ``x``. Backward needs the tables only, which all
    blocks share, so a rotation keeps nothing of its own.
    """
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)


class Rope(nn.Module):
    """Turns the queries and keys of a fused product and leaves its values."""

    def forward(self, qk: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """``qk`` (b, s, heads, head_dim) turned, and ``v`` in memory of its own.

        Backward keeps the turned qk. A view would keep the whole fused product for v's sake too.
        """
        return rotate(qk, cos, sin), v.clone()

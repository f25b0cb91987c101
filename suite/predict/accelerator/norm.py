"""The fused RMSNorm that torch has for accelerators only, as an operator that a trace on the CPU can run.

``aten::_fused_rms_norm`` falls apart into its elementwise parts wherever no kernel for the device exists; a
trace of what a card keeps needs the kernel's own interface: it saves its input and one float per row.
"""

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("recompute_suite::fused_rms_norm", mutates_args=())
def fused_rms_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """RMSNorm over the last dimension.

    Args:
        x: (..., d).
        weight: (d,).
        eps: added to the mean square.

    Returns:
        The norm, of the shape and dtype of ``x``, and the reciprocal root mean square, (..., 1), float32.
    """
    inverse = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
    return (x.float() * inverse * weight).to(x.dtype), inverse


@fused_rms_norm.register_fake
def _(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return torch.empty_like(x), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)


@torch.library.custom_op("recompute_suite::fused_rms_norm_backward", mutates_args=())
def _backward_op(grad: Tensor, x: Tensor, inverse: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    normed = x.float() * inverse
    scaled = grad.float() * weight
    inner = (scaled * normed).mean(-1, keepdim=True)
    to_weight = (grad.float() * normed).flatten(0, -2).sum(0)
    return ((scaled - normed * inner) * inverse).to(x.dtype), to_weight.to(weight.dtype)


@_backward_op.register_fake
def _(grad: Tensor, x: Tensor, inverse: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return torch.empty_like(x), torch.empty_like(weight)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
    x, weight, inverse = ctx.saved_tensors
    return *_backward_op(grad, x, inverse, weight), None


fused_rms_norm.register_autograd(_backward, setup_context=_save)

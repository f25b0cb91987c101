"""``expert_mm``: each expert's matrix product over its own rows, as one operator with static shapes.

Rows are sorted by expert and ``offsets`` says where each expert's rows end, as in
``torch.nn.functional.grouped_mm``; which rows those are is data and no shape, so that fake tensors and
torch.compile see one product. An operator of our own, because grouped_mm refuses float32 on fake tensors
and counts no FLOPs; it is what computes here where it can.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

_ALIGNMENT_BYTES = 16
# Ampere; torch refuses grouped products on what is older.
_FIRST_CAPABILITY = (8, 0)


def expert_mm(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """``x[rows of e] @ weight[e]`` for every expert e; differentiable in ``x`` and ``weight``.

    Cast by autocast as torch casts ``mm``. ``torch.library.register_autocast`` would fix the dtype and the
    kinds of device when this module is imported.

    Args:
        x: (rows, in), sorted by expert.
        weight: (experts, in, out), of the dtype of ``x`` unless autocast is enabled.
        offsets: (experts,), int32, not decreasing: the end of each expert's rows, the last one ``rows``.

    Returns:
        (rows, out). Where the products run one by one, ValueError if ``offsets`` does not end at ``rows``.
    """
    device = x.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, weight = (t if t.dtype == torch.float64 else t.to(dtype) for t in (x, weight))
    carrier = _Save.apply(x, weight, offsets)  # type: ignore[no-untyped-call]
    product: Tensor = _Multiply.apply(carrier, x.detach(), weight.detach(), offsets)  # type: ignore[no-untyped-call]
    return product


class _Save(torch.autograd.Function):
    """Saves for backward *before* the product runs, as torch's own operators do.

    A Python function, and so a custom operator too, saves when its forward has returned. A region that ends
    with the product would then run it again: a replay stops only when the last tensor has been saved. Here
    the replay stops before it. What is returned has the product's shape, one element of memory and its
    gradient.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:  # noqa: ARG004
        return x.new_empty(()).expand(x.shape[0], weight.shape[2])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        _save_inputs(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        return _expert_mm_backward(ctx, grad)


class _Multiply(torch.autograd.Function):
    """The product; the gradient is that of what :class:`_Save` returned."""

    @staticmethod
    def forward(carrier: Tensor, x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:  # noqa: ARG004
        product: Tensor = _expert_mm(x, weight, offsets)
        return product

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ARG004
        return grad, None, None, None


@torch.library.custom_op("recompute_suite::expert_mm", mutates_args=())
def _expert_mm(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    if _grouped_mm_takes(x, weight.shape[1:]):
        return F.grouped_mm(x.contiguous(), weight, offs=offsets)
    out = x.new_empty(x.shape[0], weight.shape[2])
    for expert, rows in enumerate(_spans(offsets, x.shape[0])):
        torch.mm(x[rows], weight[expert], out=out[rows])
    return out


@torch.library.custom_op("recompute_suite::expert_mm_weight_grad", mutates_args=())
def _expert_mm_weight_grad(x: Tensor, grad: Tensor, offsets: Tensor) -> Tensor:
    """``x[rows of e].T @ grad[rows of e]`` for every expert: (experts, in, out), 0 without rows."""
    experts = offsets.shape[0]
    if _grouped_mm_takes(x, (x.shape[1], grad.shape[1])):
        product = F.grouped_mm(x.contiguous().t(), grad.contiguous(), offs=offsets)
        # On some devices an expert without rows is left what the memory held (pytorch/pytorch#172439).
        without_rows = offsets.diff(prepend=offsets.new_zeros(1)) == 0
        return product.masked_fill_(without_rows[:, None, None], 0)
    out = x.new_empty(experts, x.shape[1], grad.shape[1])
    for expert, rows in enumerate(_spans(offsets, x.shape[0])):
        torch.mm(x[rows].t(), grad[rows], out=out[expert])
    return out


def _grouped_mm_takes(x: Tensor, widths: tuple[int, ...]) -> bool:
    """Whether torch has a grouped kernel here: bfloat16 on CUDA or ROCm, rows aligned to 16 bytes."""
    if x.device.type != "cuda" or x.dtype != torch.bfloat16 or not hasattr(F, "grouped_mm"):
        return False
    if torch.cuda.get_device_capability(x.device) < _FIRST_CAPABILITY:
        return False
    return all(width * x.element_size() % _ALIGNMENT_BYTES == 0 for width in widths)


def _spans(offsets: Tensor, rows: int) -> Iterator[slice]:
    """Each expert's rows. On an accelerator the host waits for the offsets here."""
    ends = offsets.tolist()
    if ends[-1] != rows:
        raise ValueError(f"offsets end at {ends[-1]}, there are {rows} rows")
    start = 0
    for end in ends:
        yield slice(start, end)
        start = end


@_expert_mm.register_fake
def _(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:  # noqa: ARG001
    return x.new_empty(x.shape[0], weight.shape[2])


@_expert_mm_weight_grad.register_fake
def _(x: Tensor, grad: Tensor, offsets: Tensor) -> Tensor:
    return x.new_empty(offsets.shape[0], x.shape[1], grad.shape[1])


def _save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _expert_mm_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, weight, offsets = ctx.saved_tensors
    wanted_x, wanted_weight, _ = ctx.needs_input_grad
    grad_x = _expert_mm(grad, weight.transpose(1, 2), offsets) if wanted_x else None
    grad_weight = _expert_mm_weight_grad(x, grad, offsets) if wanted_weight else None
    return grad_x, grad_weight, None


def _weight_grad_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, grad_out, offsets = ctx.saved_tensors
    wanted_x, wanted_out, _ = ctx.needs_input_grad
    grad_x = _expert_mm(grad_out, grad.transpose(1, 2), offsets) if wanted_x else None
    grad_grad = _expert_mm(x, grad, offsets) if wanted_out else None
    return grad_x, grad_grad, None


_expert_mm.register_autograd(_expert_mm_backward, setup_context=_save_inputs)
_expert_mm_weight_grad.register_autograd(_weight_grad_backward, setup_context=_save_inputs)


@register_flop_formula(
    [torch.ops.recompute_suite.expert_mm, torch.ops.recompute_suite.expert_mm_weight_grad]
)
def expert_mm_flops(x_shape: Any, other_shape: Any, *_: Any, **__: Any) -> int:
    """``2 * rows * in * out`` of either operator, however the rows are spread over the experts."""
    rows, width = x_shape
    return 2 * int(rows) * int(width) * int(other_shape[-1])

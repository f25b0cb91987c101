"""Tensors kept in eight bits. Imports torch: used by ``apply`` only.

A storage is divided by a scale that takes its largest element to the largest number of the format,
rounded, and multiplied by the scale when backward asks for it.
"""

import torch
from torch import Tensor

from suite.policies.copies import Copies, Copy
from suite.policies.entries import Entry

FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
# Of a saved weight: transposes and casts lead from it to the parameter.
_CASTS = ("TBackward0", "ToCopyBackward0")
_LEAF = "torch::autograd::AccumulateGrad"


class Float8Copy(Copy):
    """A storage in eight bits an element, and its scales."""

    def __init__(self, rows: Tensor, dtype: torch.dtype) -> None:
        """Of ``rows`` (n, elements), with a scale for each row."""
        super().__init__()
        self.dtype = rows.dtype
        self._elements, self._scales = quantize(rows, dtype)

    def _restore(self) -> Tensor:
        return dequantize(self._elements, self._scales, self.dtype)


class Float8Copies(Copies):
    """Keeps floating-point activations in eight bits.

    What gradients do not flow through stays exact: log-sum-exp, means and deviations would multiply
    whole rows of errors, dropout's masks and attention's biases hold infinities or two values only. So
    do one number a row, which is of the same kind, and casts of parameters.

    Args:
        device: where the model is.
        min_bytes: smaller storages stay.
        dtype: a float8 format.
        per_row: a scale for each run of the last dimension rather than one for the storage.
    """

    def __init__(self, device: torch.device, min_bytes: int, dtype: torch.dtype, *, per_row: bool) -> None:
        super().__init__(device, min_bytes)
        self._dtype, self._per_row = dtype, per_row

    def _may_copy(self, tensor: Tensor, stays: frozenset[int]) -> bool:
        if not tensor.is_floating_point() or tensor.itemsize == 1 or not tensor.requires_grad:
            return False
        if tensor.dim() == 0 or tensor.shape[-1] == 1 or _casts_a_parameter(tensor):
            return False
        return super()._may_copy(tensor, stays)

    def _fits(self, copy: Copy, tensor: Tensor) -> bool:
        return isinstance(copy, Float8Copy) and copy.dtype == tensor.dtype

    def _copy(self, tensor: Tensor, entry: Entry) -> Copy | None:  # noqa: ARG002
        storage = tensor.untyped_storage()
        count = storage.nbytes() // tensor.itemsize
        row = row_length(tensor) if self._per_row else count
        if count * tensor.itemsize != storage.nbytes() or count % row:
            self._leave(tensor, "not of whole rows")
            return None
        if count + 4 * (count // row) >= storage.nbytes():
            self._leave(tensor, "no smaller with its scales")
            return None
        return Float8Copy(tensor.as_strided((count // row, row), (row, 1), 0), self._dtype)


def row_length(tensor: Tensor) -> int:
    """Elements of ``tensor`` side by side: its last dimension, or whichever is the last in memory."""
    size, stride = tensor.shape, tensor.stride()
    if stride[-1] == 1:
        return size[-1]
    return next((n for n, step in zip(size, stride, strict=True) if step == 1), 1)


def quantize(rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``rows`` (n, elements) as float8 of the same shape, and the scales (n, 1), float32."""
    largest = torch.finfo(dtype).max
    amax = torch.linalg.vector_norm(rows, torch.inf, dim=-1, keepdim=True, dtype=torch.float32)
    # A row of zeros needs a scale too. The largest element may round to just beyond the format's end,
    # which e4m3 would make a NaN.
    scales = amax.div_(largest).clamp_(min=torch.finfo(torch.float32).tiny)
    return (rows / scales).clamp_(-largest, largest).to(dtype), scales


def dequantize(elements: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """What :func:`quantize` took, in ``dtype`` and to the rounding of the format."""
    return elements.to(torch.float32).mul_(scales).to(dtype)


def _casts_a_parameter(tensor: Tensor) -> bool:
    node = tensor.grad_fn
    while node is not None and node.name() in _CASTS:
        node = node.next_functions[0][0]
    return node is not None and node.name() == _LEAF

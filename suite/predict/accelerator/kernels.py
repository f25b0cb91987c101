"""Runs a card's operators in a trace on the CPU: fused attention and norms, dropout, autocast's lists.

A CPU build of torch cannot differentiate on a fake card. The trace therefore runs on fake CPU tensors, and
where torch would choose another operator on a card, that one is called instead. What it keeps for backward
is then what the card keeps.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from suite.config.schema import CellConfig
from suite.predict.accelerator.norm import fused_rms_norm
from suite.training.precision import PRECISION

_aten = torch.ops.aten
# The widest head of torch's flash attention.
_FLASH_HEAD_DIM = 256
# Of the functions that our models call, those that CUDA's autocast runs in float32 and the CPU's does not:
# ATen/autocast_mode.h, AT_FORALL_FP32 and AT_FORALL_FP32_SET_OPT_DTYPE.
_IN_FLOAT32: tuple[tuple[Any, str], ...] = ((F, "layer_norm"), (Tensor, "softmax"))


def attention_kernel(config: CellConfig) -> str:
    """The kernel torch's ``sdpa`` chooses on a card: flash, efficient or math.

    flash wants 16 bits, no mask and narrow heads; efficient takes float32 and masks, but no shared
    key-value heads (torch 2.13, ``sdp_utils.cpp``). The cell's own kernel where it names one.
    """
    if config.attention == "eager":
        return "eager"
    masked = config.data.kind == "packed"
    sixteen = config.precision != "fp32"
    width = config.model.head_dim or config.model.d_model // config.model.n_heads
    if config.attention == "flash" or (sixteen and not masked and width <= _FLASH_HEAD_DIM):
        return "flash"
    return "efficient" if config.model.n_kv_heads == config.model.n_heads else "math"


class AcceleratorKernels:
    """While entered, functions that the models call are a card's.

    The functions of ``torch.nn.functional`` themselves are replaced: a mode would be left whenever torch
    calls Python from inside of one, as backward does to rebuild what a policy has let go.

    Args:
        kernel: of attention: flash, efficient or math.
        fused_norms: RMSNorm as one operator.
        precision: the cell's; says whether autocast is on, and its dtype.
    """

    def __init__(self, kernel: str, *, fused_norms: bool, precision: str) -> None:
        self._kernel, self._fused_norms = kernel, fused_norms
        self._autocast = PRECISION[precision].autocast_dtype
        self._before: dict[tuple[Any, str], Any] = {}

    def __enter__(self) -> None:
        """Put the card's functions in place."""
        self._replace(F, "scaled_dot_product_attention", self._attention)
        self._replace(F, "dropout", self._dropout)
        self._replace(F, "rms_norm", self._in_float32(self._rms_norm))
        for owner, name in _IN_FLOAT32:
            self._replace(owner, name, self._in_float32(getattr(owner, name)))

    def __exit__(self, *_: object) -> None:
        """Put torch's own back."""
        for (owner, name), function in self._before.items():
            setattr(owner, name, function)
        self._before.clear()

    def _replace(self, owner: Any, name: str, function: Callable[..., Any]) -> None:
        self._before[owner, name] = getattr(owner, name)
        setattr(owner, name, function)

    def _in_float32(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as CUDA's autocast calls it."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._autocast is not None and torch.is_autocast_enabled("cpu"):
                args = tuple(_float32(a) for a in args)
                kwargs = {k: _float32(v) for k, v in kwargs.items()}
            return function(*args, **kwargs)

        return call

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if self._autocast is not None and torch.is_autocast_enabled("cpu"):
            query, key, value = (t.to(self._autocast) for t in (query, key, value))
        if self._kernel == "flash":
            flash = _aten._scaled_dot_product_flash_attention
            return flash(query, key, value, dropout_p, is_causal, return_debug_mask=False, scale=scale)[0]
        if self._kernel == "efficient":
            efficient = _aten._scaled_dot_product_efficient_attention
            bias = None if attn_mask is None else _bias(attn_mask, query)
            return efficient(query, key, value, bias, True, dropout_p, is_causal, scale=scale)[0]
        return _aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or inplace or p == 0:
            return self._before[F, "dropout"](input, p, training, inplace)
        return torch.native_dropout(input, p, training)[0]

    def _rms_norm(
        self, input: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None
    ) -> Any:
        if not self._fused_norms or weight is None:
            return self._before[F, "rms_norm"](input, shape, weight, eps)
        return fused_rms_norm(input, weight, eps if eps is not None else torch.finfo(input.dtype).eps)[0]


def _float32(value: Any) -> Any:
    half = isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.float() if half else value


def _bias(mask: Tensor, query: Tensor) -> Tensor:
    """A mask of booleans as the addend that the kernel takes, of every head of a batch at once."""
    if mask.dtype != torch.bool:
        return mask
    bias = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, float("-inf"))
    return bias.expand(query.shape[0], query.shape[1], query.shape[2], query.shape[2])


def kernel_workspace_bytes(operator: str, args: tuple[Any, ...]) -> int:
    """What a card's kernel allocates for itself and frees before it returns.

    The backward of flash attention sums the gradient of the queries in float32 and keeps a row sum for each
    query; with shared key-value heads it makes their gradients for every query head first
    (``flash_api.cpp``, ``mha_bwd``).
    """
    if operator != "aten::_scaled_dot_product_flash_attention_backward":
        return 0
    query, key = args[1], args[2]
    batch, heads, length, width = query.shape
    rounded = -(-length // 128) * 128
    sums = batch * heads * rounded * (-(-width // 32) * 32) * 4 + batch * heads * rounded * 4
    expanded = 0
    if key.shape[1] != heads:
        expanded = 2 * batch * key.shape[2] * heads * width * key.element_size()
    return int(sums + expanded)

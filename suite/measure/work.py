"""What runs, operator by operator: how often in the forward, how often again in a replay, and its FLOPs.

Counts are torch's: 2 per multiply-add of matrix products and attention, attention as if not causal;
elementwise work is not counted. Calls are counted for every operator but views, so that the replay of a
norm shows even though it has no FLOPs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from suite.measure.instrument import ModulePaths

_FORWARD = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)


@dataclass
class Work:
    """One operator in one module. Backward's own operators have neither forwards nor replays."""

    module: str
    operator: str
    forward_calls: int = 0
    replay_calls: int = 0
    forward_flops: int = 0
    replay_flops: int = 0


class WorkCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while the mode is entered.

    Attributes:
        total_flops: of everything so far.
        backward: to be set when backward begins.
    """

    def __init__(self, paths: ModulePaths | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total_flops = 0
        self.backward = False
        self._paths = paths
        self._work: dict[tuple[str, str], Work] = {}

    @property
    def work(self) -> list[Work]:
        """What ran in forwards and replays, in the order of its first run."""
        return list(self._work.values())

    # Compiled code wraps operators that draw random numbers, fused attention among them.
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let compiled code run as compiled while the mode is entered: else torch leaves it eager."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and count it; one that only stands for others is counted as those."""
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            return self._run_higher_order(func, args, kwargs)
        if formula_of(func) is None and func is not torch.ops.prim.device.default:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        output = func(*args, **kwargs)
        self._count(func, args, kwargs, output)
        return output

    def _run_higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run what compiled code wraps round an operator, and count that operator.

        The wrapper that keeps the random state for a replay returns it before the operator's own output.
        """
        output = func(*args, **kwargs)
        inside = next((i for i, a in enumerate(args) if isinstance(a, OpOverload)), None)
        if inside is not None:
            own = output[1] if func.__name__ == "run_and_save_rng_state" else output
            self._count(args[inside], args[inside + 1 :], kwargs, own)
        return output

    def _count(self, func: OpOverload, args: Any, kwargs: Any, output: Any) -> None:
        formula = formula_of(func)
        flops = 0 if formula is None else formula(*args, **kwargs, out_val=output)
        self.total_flops += flops
        if not func.is_view:
            self._enter(str(func.name()), flops)  # type: ignore[no-untyped-call]

    def _enter(self, operator: str, flops: int) -> None:
        replay = self.backward
        if replay and (self._paths is None or not self._paths.inside_forward):
            return
        module = self._paths.current if self._paths is not None else ""
        work = self._work.setdefault((module, operator), Work(module, operator))
        if replay:
            work.replay_calls += 1
            work.replay_flops += flops
        else:
            work.forward_calls += 1
            work.forward_flops += flops


def formula_of(func: OpOverload) -> Callable[..., int] | None:
    """How the FLOPs of ``func`` are counted, from its arguments and ``out_val``; None if it has none."""
    name: str = func.name()  # type: ignore[no-untyped-call]
    packet = func._overloadpacket
    # torch's registry is asked each time: an operator of ours enters it when a model first needs it.
    return _attention().get(packet) or flop_registry.get(packet) or _BY_NAME.get(name)


@cache
def _attention() -> dict[Any, Callable[..., int]]:
    """What torch's own formulas lack.

    Every fused attention operator that this torch has, the CPU's included. Forward: two products of
    2 b h s_q s_k d. Backward: five, as flash attention rebuilds the scores (Dao et al. 2022,
    arXiv:2205.14135). Torch's own formulas do not know the CPU's operator and, before 2.12, refuse grouped
    queries.
    """
    known: dict[Any, Callable[..., int]] = {}
    for name in _FORWARD:
        for suffix, formula in (("", _attention_forward), ("_backward", _attention_backward)):
            operator = getattr(torch.ops.aten, name + suffix, None)
            if operator is not None:
                known[operator] = formula
    return known


def _chunked_loss(hidden: torch.Tensor, weight: torch.Tensor, *_: Any, **__: Any) -> int:
    """Logits and the gradients of both factors, which the operator computes in forward: three products."""
    return 6 * hidden.shape[0] * hidden.shape[1] * weight.shape[0]


# Operators that torch defines when they are first used. This one is behind
# torch.nn.functional.linear_cross_entropy, and torch counts nothing for it.
_BY_NAME: dict[str, Callable[..., int]] = {"torch_nn::_linear_cross_entropy_batch_chunked": _chunked_loss}


def _product_flops(query: torch.Tensor, key: torch.Tensor) -> int:
    batch, heads, queries, width = query.shape
    return 2 * batch * heads * queries * key.shape[-2] * width


def _attention_forward(query: torch.Tensor, key: torch.Tensor, *_: Any, **__: Any) -> int:
    return 2 * _product_flops(query, key)


def _attention_backward(
    _gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, *_: Any, **__: Any
) -> int:
    return 5 * _product_flops(query, key)

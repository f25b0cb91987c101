"""The FLOPs pass: what one forward and backward executes, and how much of it is done again.

``model_flops`` is what the workload needs: the same step without a policy, counted on fake tensors, so
that it is known even where that step would not fit. ``executed_flops`` is counted on the real step.
Their difference is ``recomputed_flops``. Counts are torch's: 2 per multiply-add of matrix products and
attention, attention as if not causal; elementwise work is not counted.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from suite.cell import Cell
from suite.config.schema import CellConfig, SessionConfig
from suite.measure import Measurement
from suite.measure.setup import Subject, build_subject
from suite.training.data import Batch, batches
from suite.training.precision import PRECISION
from suite.training.step import model_loss

_FORWARD = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)


def take(cell: Cell, round_: int, session: SessionConfig) -> Measurement:  # noqa: ARG001
    """Count one step without and with the policy. Deterministic."""
    config = cell.config
    model_flops, by_phase = count_model_flops(config)
    subject = build_subject(config, instrumented=False)
    applied = subject.apply_policy()
    executed, executed_by_phase = _count(subject, first_batch(config), applied.verify)
    return Measurement(
        figures={
            "model_flops": model_flops,
            "executed_flops": executed,
            "recomputed_flops": executed - model_flops,
            "model_forward_flops": by_phase["forward"],
            "executed_forward_flops": executed_by_phase["forward"],
            "tokens_count": config.batch_size * config.seq_len,
        },
    )


def count_model_flops(config: CellConfig) -> tuple[int, dict[str, int]]:
    """FLOPs of a step that keeps everything, in all and by phase; allocates nothing."""
    with FakeTensorMode():
        subject = build_subject(config, instrumented=False)
        batch = tree_map_only(torch.Tensor, _fake_like(config.device), first_batch_cpu(config))
        return _count(subject, batch, lambda: None)


def first_batch_cpu(config: CellConfig) -> Batch:
    """The first batch of the cell's data, on the host."""
    return next(iter(batches(config)))


def first_batch(config: CellConfig) -> Batch:
    """The first batch of the cell's data, on its device."""
    moved: Batch = tree_map_only(torch.Tensor, lambda t: t.to(config.device), first_batch_cpu(config))
    return moved


def _fake_like(device: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: torch.empty(t.shape, dtype=t.dtype, device=device)


def _count(subject: Subject, batch: Batch, verify: Callable[[], None]) -> tuple[int, dict[str, int]]:
    counter = FlopCounterMode(display=False, custom_mapping=attention_formulas())
    starts: dict[str, int] = {}
    with counter:
        with PRECISION[subject.config.precision].autocast(subject.config.device):
            loss = model_loss(subject.model, batch, lambda phase: _note(starts, phase, counter))
        verify()
        _note(starts, "backward", counter)
        loss.backward()  # type: ignore[no-untyped-call]
    total = counter.get_total_flops()
    return total, {"forward": starts["backward"], "backward": total - starts["backward"]}


def _note(starts: dict[str, int], phase: str, counter: FlopCounterMode) -> None:
    starts[phase] = counter.get_total_flops()


def attention_formulas() -> dict[Any, Callable[..., int]]:
    """Counts of every fused attention operator that this torch has, the CPU's included.

    Forward: two products of 2 b h s_q s_k d. Backward: five, as flash attention rebuilds the scores
    (Dao et al. 2022, arXiv:2205.14135). Torch's own formulas do not know the CPU's operator and, before
    2.12, refuse grouped queries.
    """
    formulas: dict[Any, Callable[..., int]] = {}
    for name in _FORWARD:
        for suffix, formula in (("", _attention_forward), ("_backward", _attention_backward)):
            operator = getattr(torch.ops.aten, name + suffix, None)
            if operator is not None:
                formulas[operator] = formula
    return formulas


def _product_flops(query: tuple[int, ...], key: tuple[int, ...]) -> int:
    batch, heads, queries, width = query
    return 2 * batch * heads * queries * key[-2] * width


def _attention_forward(query: Any, key: Any, *_: Any, **__: Any) -> int:
    return 2 * _product_flops(query, key)


def _attention_backward(_gradient: Any, query: Any, key: Any, *_: Any, **__: Any) -> int:
    return 5 * _product_flops(query, key)

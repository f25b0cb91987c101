"""The FLOPs pass: what one forward and backward executes, and how much of it is done again.

``model_flops`` is what the workload needs: the same step without a policy, counted on fake tensors, so
that it is known even where that step would not fit. ``executed_flops`` is counted on the real step.
Their difference is ``recomputed_flops``. See :mod:`suite.measure.work` for what counts.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from suite.cell import Cell
from suite.config.schema import CellConfig, SessionConfig
from suite.measure import Measurement
from suite.measure.compiled import WarmUp, warm_up
from suite.measure.places import entry_work, recomputed_blocks, work_by_place
from suite.measure.setup import Subject, build_subject, first_batch, first_batch_cpu
from suite.measure.work import WorkCounter
from suite.policies import Applied
from suite.training.data import Batch
from suite.training.precision import PRECISION
from suite.training.step import model_loss

# Runs a compiled graph operator by operator.
_OPERATORS_ONLY = "aot_eager"


def take(cell: Cell, round_: int, session: SessionConfig) -> Measurement:  # noqa: ARG001
    """Count one step without and with the policy. Deterministic."""
    config = cell.config
    model_flops, forward_flops = count_model_flops(config)
    if config.compile != "none":
        return _take_compiled(config, model_flops, forward_flops)
    subject = build_subject(config, instrumented=True)
    applied = subject.apply_policy()
    counter, executed_forward_flops = _count(subject, first_batch(config), applied)
    return Measurement(
        figures={
            "model_flops": model_flops,
            "executed_flops": counter.total_flops,
            "recomputed_flops": counter.total_flops - model_flops,
            "model_forward_flops": forward_flops,
            "executed_forward_flops": executed_forward_flops,
            "tokens_count": config.batch_size * config.seq_len,
            "blocks_recomputed_count": recomputed_blocks(counter.work),
        },
        detail={
            "work": work_by_place(counter.work),
            "entries": entry_work(applied.entries, counter.work),
        },
    )


def _take_compiled(config: CellConfig, model_flops: int, forward_flops: int) -> Measurement:
    """The counts of a compiled step. Where in the model a product runs is not known there.

    Products reach the counter as operators where the backend calls the library for them. Where inductor
    makes kernels of its own instead, fewer are counted than the model has: then the same step is counted
    as ``aot_eager`` splits it, which calls operators only, and ``counted_on`` says so.
    """
    backend = config.compile_backend
    counter, forward, warm = _count_compiled(config)
    if backend != _OPERATORS_ONLY and counter.total_flops < model_flops:
        backend = _OPERATORS_ONLY
        torch.compiler.reset()
        counter, forward, warm = _count_compiled(dataclasses.replace(config, compile_backend=backend))
    return Measurement(
        figures={
            "model_flops": model_flops,
            "executed_flops": counter.total_flops,
            "recomputed_flops": counter.total_flops - model_flops,
            "model_forward_flops": forward_flops,
            "executed_forward_flops": forward,
            "tokens_count": config.batch_size * config.seq_len,
            "graphs_count": warm.graphs_count,
        },
        detail={
            "counted_on": backend,
            "work": work_by_place(counter.work),
            "entries": [{"name": e.name, "hits": e.hits} for e in warm.entries],
        },
    )


def _count_compiled(config: CellConfig) -> tuple[WorkCounter, int, WarmUp]:
    subject = build_subject(config, instrumented=False)
    applied = subject.apply_policy()
    warm = warm_up(subject, applied)
    counter, forward = _count(subject, first_batch(config), applied)
    return counter, forward, warm


def count_model_flops(config: CellConfig) -> tuple[int, int]:
    """FLOPs of a step that keeps everything and compiles nothing, and of its forward; allocates nothing."""
    config = dataclasses.replace(config, compile="none", compile_backend="")
    with FakeTensorMode():
        subject = build_subject(config, instrumented=False)
        batch = tree_map_only(torch.Tensor, _fake_like(config.device), first_batch_cpu(config))
        counter, forward = _count(subject, batch, Applied())
    return counter.total_flops, forward


def _fake_like(device: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: torch.empty(t.shape, dtype=t.dtype, device=device)


def _count(subject: Subject, batch: Batch, applied: Applied) -> tuple[WorkCounter, int]:
    """One step under a counter; the counter, and the FLOPs of the forward."""
    counter = WorkCounter(subject.paths)
    with counter:
        with PRECISION[subject.config.precision].autocast(subject.config.device):
            loss = model_loss(subject.model, batch, lambda _: None)
        applied.verify()
        forward = counter.total_flops
        counter.backward = True
        loss.backward()  # type: ignore[no-untyped-call]
    return counter, forward

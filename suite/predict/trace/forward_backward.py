"""One forward and backward of a cell's model under FakeTensor, stretch by stretch."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from suite.config.schema import CellConfig
from suite.measure.setup import build_subject
from suite.measure.tracker import MemoryLog
from suite.models.decoder import Decoder
from suite.policies import Applied, Entry, make_policy
from suite.predict.trace.pattern import Part
from suite.predict.trace.recorder import Recorder, Stretch
from suite.predict.trace.step import Target
from suite.training.data import Batch
from suite.training.precision import PRECISION
from suite.training.step import model_loss

# Hits and host bytes of each rule of a policy.
Counted = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ParameterFact:
    """One parameter: its names, of which the second and further are of tied weights, and its tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class RawTrace:
    """A forward and backward of a trunk as it is, or of its stand-in.

    Attributes:
        log: events from the first tensor to the end of backward; nothing is freed after.
        stretches: in order, from the first event of the step on.
        applied: what the policy did.
        counted: hits and host bytes of each rule: before the forward, and when it ended.
        parameters: in the order of the optimizer.
        static: allocation indices of parameters and buffers.
        batch: those of the batch.
        gradients: name of a parameter to the allocation of its gradient.
        leftover: those of the loss, of its copy, in the order in which the loop lets go of them.
    """

    log: MemoryLog
    stretches: Sequence[Stretch]
    applied: Applied
    counted: tuple[Counted, Counted]
    parameters: Sequence[ParameterFact]
    static: Sequence[int]
    batch: Sequence[int]
    gradients: dict[str, int]
    leftover: Sequence[int]


def run(
    config: CellConfig,
    parts: Sequence[Part] | None,
    pieces: Sequence[Sequence[int]],
    target: Target | None = None,
) -> RawTrace:
    """Trace the model of ``config``.

    Args:
        config: its depth is that of what is traced.
        parts: what to apply instead of the cell's own policy, or None for that.
        pieces: block indices; the stretches are theirs.
        target: of another device than this CPU; the tensors are the CPU's all the same.
    """
    config = replace(config, device="cpu")
    with FakeTensorMode(), target.kernels() if target is not None else nullcontext():
        subject = build_subject(config, instrumented=True)
        model, paths = subject.model, subject.paths
        assert paths is not None
        applied = subject.apply_policy() if parts is None else apply_parts(model, parts)
        recorder = Recorder(paths, target.workspace if target is not None else None)
        for number, piece in enumerate(pieces):
            ends = model.blocks[piece[0]], model.blocks[piece[-1]]
            is_last = number == len(pieces) - 1
            _follow(*ends, number, recorder, applied.entries, is_last=is_last)
        batch = _fake_batch(config)
        return _step(config, model, batch, recorder, applied)


def apply_parts(model: Decoder, parts: Sequence[Part]) -> Applied:
    """Apply each part to its pieces' blocks, as an assignment does."""
    applied = Applied()
    for part in parts:
        blocks = [index for piece in part.pieces for index in piece]
        done = make_policy(part.policy).apply(model, blocks)
        applied = applied.joined(done, part.prefix) if part.prefix else _merged(applied, done)
    return applied


def _merged(first: Applied, second: Applied) -> Applied:
    return replace(second, regions=first.regions + second.regions, entries=first.entries + second.entries)


def _step(
    config: CellConfig, model: Decoder, batch: Batch, recorder: Recorder, applied: Applied
) -> RawTrace:
    names = {p: n for n, p in model.named_parameters()}
    with recorder:
        for name, tensor in batch._asdict().items():
            if tensor is not None:
                recorder.mark(tensor, "batch", name)
        for parameter, name in names.items():
            recorder.mark(parameter, "parameter", name)
        for name, buffer in model.named_buffers():
            recorder.mark(buffer, "buffer", name)
        before = len(recorder.log.allocations)
        recorder.begin_step()
        recorder.enter("edge", -1)
        if applied.host is not None:
            applied.host.begin_step()
        counted = [count(applied.entries)]

        def begin_phase(phase: str) -> None:
            if phase == "loss":
                applied.verify()
                counted.append(count(applied.entries))
            recorder.begin_phase(phase)

        with PRECISION[config.precision].autocast("cpu"):
            output = model_loss(model, batch, begin_phase)
        # As Lightning does: the loss over the number of accumulated batches, and a copy to hand on.
        loss = output / 1
        kept = output.detach().clone()
        del output
        recorder.begin_phase("backward")
        torch.autograd.backward(loss)
        recorder.enter("edge", -1)
        recorder.begin_phase("optimizer")
        gradients = {}
        for parameter, name in names.items():
            if parameter.grad is not None:
                gradients[name] = _index(recorder, parameter.grad, "gradient", name)
        leftover = [_index(recorder, t) for t in (loss, kept)]
        recorder.finish()
        log = recorder.log
        events = list(log.events)
    kinds = [a.kind for a in log.allocations[:before]]
    return RawTrace(
        log=MemoryLog(log.allocations, events, log.phase_starts, log.step_starts),
        stretches=recorder.stretches[1:],
        applied=applied,
        counted=(counted[0], counted[1]),
        parameters=[ParameterFact(n, tuple(p.shape), p.dtype) for p, n in names.items()],
        static=[i for i, kind in enumerate(kinds) if kind in ("parameter", "buffer")],
        batch=[i for i, kind in enumerate(kinds) if kind == "batch"],
        gradients=gradients,
        leftover=leftover,
    )


def _index(recorder: Recorder, tensor: Tensor, kind: str = "", name: str = "") -> int:
    index = recorder.index_of(tensor)
    if kind:
        allocation = recorder.log.allocations[index]
        allocation.kind, allocation.name = kind, name
    return index


def count(entries: Sequence[Entry]) -> Counted:
    """The rules' counts as they are now."""
    return tuple((entry.hits, entry.host_bytes) for entry in entries)


def _fake_batch(config: CellConfig) -> Batch:
    shape = (config.batch_size, config.seq_len)
    documents = torch.empty(shape, dtype=torch.int64) if config.data.kind == "packed" else None
    return Batch(torch.empty(shape, dtype=torch.int64), torch.empty(shape, dtype=torch.int64), documents)


def _follow(
    first: nn.Module,
    last: nn.Module,
    piece: int,
    recorder: Recorder,
    entries: Sequence[Entry],
    *,
    is_last: bool,
) -> None:
    """Let the recorder know when the piece's forward and backward begin.

    The forward lasts until the next piece's begins: what the trunk lets go of in between is the piece's.
    """
    _before(first, lambda: recorder.enter("forward", piece))

    def begin_backward(_: Tensor) -> None:
        recorder.enter("backward", piece)

    def after(out: Tensor) -> None:
        recorder.stretches[-1].counted = count(entries)
        if out.requires_grad:
            out.register_hook(begin_backward)  # type: ignore[no-untyped-call]
        if is_last:
            recorder.enter("edge", -1)

    _after(last, after)


def _before(module: nn.Module, action: Callable[[], None]) -> None:
    inner = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        action()
        return inner(*args, **kwargs)

    module.forward = forward


def _after(module: nn.Module, action: Callable[[Any], None]) -> None:
    inner = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        out = inner(*args, **kwargs)
        action(out)
        return out

    module.forward = forward

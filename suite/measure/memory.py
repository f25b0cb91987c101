"""The memory pass: two training steps under the tracker; the second is the steady one.

The first step is where optimizer states are born; its peak is reported too. On an accelerator the
headline is the allocator's peak; the tracker, which allocates nothing there, explains it. A compiled
step is read by the profiler, after what compiles has run: where in the model a tensor comes from and
what the very first step needed are then not known.
"""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from suite.cell import Cell
from suite.config.schema import CellConfig, SessionConfig
from suite.measure import Measurement
from suite.measure.account import PHASES, StepAccount, account_step
from suite.measure.allocator import AllocatorMeter
from suite.measure.compiled import compiled_anew, warm_up
from suite.measure.places import entry_bytes, kept_by_place, outside_regions
from suite.measure.profiled import MemoryProfiler
from suite.measure.setup import build_subject
from suite.measure.tracker import MemoryTracker
from suite.policies import Applied, Entry
from suite.training.data import Batch
from suite.training.loop import StepObserver, train

_STEADY_STEP = 1


def take(cell: Cell, round_: int, session: SessionConfig) -> Measurement:  # noqa: ARG001
    """Measure where the bytes of a training step are. Deterministic on the CPU."""
    config = cell.config
    return measure_memory(config, "tracker" if config.compile == "none" else "profiler")


def measure_memory(config: CellConfig, meter: str) -> Measurement:
    """The pass by the ``tracker``, or by the ``profiler``, which sees compiled code but no modules."""
    subject = build_subject(config, instrumented=meter == "tracker")
    tracker = (
        MemoryTracker(config.device, subject.paths)
        if meter == "tracker"
        else MemoryProfiler(config.device, _STEADY_STEP)
    )
    applied = subject.apply_policy()
    warm = warm_up(subject, applied) if subject.compilation is not None else None
    allocator = None if config.device == "cpu" else AllocatorMeter()
    observer = _Observer(subject.model, tracker, applied, allocator)
    with tracker:
        train(subject.model, config, observer, max_steps=_STEADY_STEP + 1)
    rules = observer.entries if warm is None else warm.entries
    if isinstance(tracker, MemoryTracker):
        steady = account_step(tracker.log, _STEADY_STEP)
        figures = _figures(steady) | _located(steady, applied)
        figures["first_step_peak_bytes"] = account_step(tracker.log, 0).peak_bytes
        entries = _entries(rules, steady)
    else:
        steady = account_step(tracker.log, 0)
        figures = _figures(steady)
        entries = [{"name": e.name, "hits": e.hits, "host_bytes": e.host_bytes} for e in rules or ()]
    detail = _detail(steady) | {
        "meter": meter,
        "regions": [region.label for region in applied.regions],
        "kept": kept_by_place(steady.saved),
        "entries": entries,
    }
    figures["regions_count"] = len(applied.regions)
    if applied.host is not None:
        figures |= applied.host.figures()
    if warm is not None:
        figures["graphs_count"] = warm.graphs_count
    if allocator is not None:
        figures |= allocator.figures()
        figures |= {f"peak_{p}_bytes": n for p, n in allocator.phase_peaks.items()}
        figures["tracked_peak_bytes"] = steady.peak_bytes
        figures["peak_bytes"] = figures["peak_allocated_bytes"]
        detail["meter"] = "allocator"
        detail["phase_peaks"] = allocator.phase_peaks
    warnings = compiled_anew(subject, warm) if warm is not None else []
    return Measurement(figures=figures, detail=detail, warnings=warnings)


class _Observer(StepObserver):
    """Tells the tracker which step and phase it is, and what each known tensor is for."""

    def __init__(
        self,
        model: nn.Module,
        tracker: MemoryTracker | MemoryProfiler,
        applied: Applied,
        allocator: AllocatorMeter | None,
    ) -> None:
        self._model, self._tracker, self._applied = model, tracker, applied
        self._allocator = allocator
        self._names: dict[torch.Tensor, str] = {p: n for n, p in model.named_parameters()}
        self._optimizer: Optimizer | None = None
        self._steady = False
        self.entries: tuple[Entry, ...] | None = None

    def on_optimizer(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer

    def on_step_start(self, index: int, batch: Batch) -> None:
        for parameter, name in self._names.items():
            self._tracker.mark(parameter, "parameter", name)
        for name, buffer in self._model.named_buffers():
            self._tracker.mark(buffer, "buffer", name)
        for name, tensor in batch._asdict().items():
            if tensor is not None:
                self._tracker.mark(tensor, "batch", name)
        self._mark_optimizer_state()
        self._steady = index == _STEADY_STEP
        if self._allocator is not None:
            torch.accelerator.reset_peak_memory_stats()
        if self._applied.host is not None:
            self._applied.host.begin_step()
        self._tracker.begin_step()

    def on_phase(self, phase: str) -> None:
        if self._allocator is not None and self._steady and self._tracker.phase in PHASES:
            self._allocator.end_phase(self._tracker.phase)
        if phase == "loss" and self.entries is None:
            self._applied.verify()
            self.entries = self._applied.counted()
        if phase == "optimizer":
            self._mark_gradients()
        self._tracker.begin_phase(phase)

    def on_step_end(self, index: int) -> bool:
        if self._allocator is not None and self._steady:
            self._allocator.end_step()
        return index >= _STEADY_STEP

    def _mark_gradients(self) -> None:
        for parameter, name in self._names.items():
            if parameter.grad is not None:
                self._tracker.mark(parameter.grad, "gradient", name)

    def _mark_optimizer_state(self) -> None:
        if self._optimizer is None:
            return
        for parameter, states in self._optimizer.state.items():
            for kind, state in states.items():
                if isinstance(state, torch.Tensor):
                    self._tracker.mark(state, "optimizer_state", f"{self._names[parameter]}.{kind}")


def _entries(entries: tuple[Entry, ...] | None, steady: StepAccount) -> list[dict[str, Any]]:
    assert entries is not None, "no forward has run"
    kept = entry_bytes(entries, steady.saved)
    return [
        {"name": e.name, "hits": e.hits, "kept_bytes": nbytes, "host_bytes": e.host_bytes}
        for e, nbytes in zip(entries, kept, strict=True)
    ]


def _located(steady: StepAccount, applied: Applied) -> dict[str, float]:
    """Of the saved bytes, what needs to know which module made them."""
    in_blocks = steady.saved_under("blocks")
    return {
        "saved_in_blocks_bytes": in_blocks,
        "saved_outside_blocks_bytes": steady.saved_bytes - in_blocks,
        "saved_outside_regions_bytes": outside_regions(steady.saved, applied.regions),
    }


def _figures(steady: StepAccount) -> dict[str, float]:
    by_kind = steady.start_by_kind
    figures: dict[str, float] = {
        "peak_bytes": steady.peak_bytes,
        "static_bytes": steady.static_bytes,
        "parameter_bytes": by_kind.get("parameter", 0),
        "buffer_bytes": by_kind.get("buffer", 0),
        "optimizer_state_bytes": by_kind.get("optimizer_state", 0),
        "batch_bytes": by_kind.get("batch", 0),
        "activation_bytes": steady.activation_bytes,
        "saved_bytes": steady.saved_bytes,
    }
    figures |= {f"peak_{phase}_bytes": n for phase, n in steady.phase_peaks.items()}
    figures |= {f"after_{phase}_bytes": n for phase, n in steady.phase_ends.items()}
    return figures


def _detail(steady: StepAccount) -> dict[str, Any]:
    top = steady.top_tensors()
    largest = top[0] if top else {"operator": "", "module": ""}
    return {
        "peak_phase": steady.peak_phase,
        "peak_operator": largest["operator"],
        "peak_module": largest["module"],
        "top_tensors": top,
        "phase_peaks": steady.phase_peaks,
        "peak_composition": steady.composition(),
        "live_bytes": [list(point) for point in steady.sampled_curve()],
    }

"""The memory pass: two training steps under the tracker; the second is the steady one.

The first step is where optimizer states are born; its peak is reported too. On an accelerator the
headline is the allocator's peak; the tracker, which allocates nothing there, explains it. A compiled
step is read by the profiler, after what compiles has run: where in the model a tensor comes from and
what the very first step needed are then not known.
"""

import torch
from torch import nn
from torch.optim import Optimizer

from suite.cell import Cell
from suite.config.schema import CellConfig, SessionConfig
from suite.measure import Measurement
from suite.measure.account import PHASES, account_step
from suite.measure.allocator import AllocatorMeter
from suite.measure.compiled import compiled_anew, warm_up
from suite.measure.memory_figures import entry_rows, located_figures, memory_detail, memory_figures
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
        figures = memory_figures(steady) | located_figures(steady, applied.regions)
        figures["first_step_peak_bytes"] = account_step(tracker.log, 0).peak_bytes
        entries = entry_rows(rules, steady)
    else:
        steady = account_step(tracker.log, 0)
        figures = memory_figures(steady)
        entries = [{"name": e.name, "hits": e.hits, "host_bytes": e.host_bytes} for e in rules or ()]
    detail = memory_detail(steady, applied.regions) | {"meter": meter, "entries": entries}
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

"""The time pass: one round. Warm up until steady, then time each of N training steps.

No tracker, hook or counter is active. The round's figure is the median step; a step is never the unit
of replication, a round is. On an accelerator, events mark the steps and nothing waits inside the window.
"""

import statistics
import time
from typing import Any

import torch

from suite.cell import Cell
from suite.config.schema import CellConfig, HardwareConfig, SessionConfig, TrainerConfig
from suite.measure import Measurement
from suite.measure.compiled import compiled_anew, warm_up
from suite.measure.setup import build_subject
from suite.peak import MEASURED
from suite.policies import Applied
from suite.training.data import Batch
from suite.training.loop import StepObserver, train

_STEADY_WINDOW = 3
_GEMM_SIZE = 1024
_GEMM_REPEATS = 5


def take(cell: Cell, round_: int, session: SessionConfig) -> Measurement:  # noqa: ARG001
    """Time one round of the cell's training steps."""
    config, protocol = cell.config, session.trainer
    subject = build_subject(config, instrumented=False)
    applied = subject.apply_policy()
    warm = warm_up(subject, applied) if subject.compilation is not None else None
    clock = _EventClock(config.device) if config.device != "cpu" else _HostClock()
    stopwatch = _Stopwatch(protocol, clock, applied)
    train(subject.model, config, stopwatch, max_steps=protocol.warmup_max_steps + protocol.steps)
    steps = stopwatch.timed_steps()
    median = statistics.median(steps)
    rate, source = peak_rate(config, session.hardware)
    figures: dict[str, float] = {
        "step_time_s": median,
        "step_time_min_s": min(steps),
        "step_time_max_s": max(steps),
        "tokens_per_s": config.batch_size * config.seq_len / median,
        "steps_count": len(steps),
        "warmup_steps_count": stopwatch.warmup_steps or 0,
        "converged_count": int(stopwatch.steady),
    }
    if rate:
        figures["peak_flops_per_s"] = rate
    warnings = [] if stopwatch.steady else [_unsteady(protocol)]
    if warm is not None:
        figures["compile_time_s"] = warm.compile_time_s
        warnings += compiled_anew(subject, warm)
    return Measurement(
        figures=figures,
        detail={"step_times_s": steps, "peak_flops_source": source},
        warnings=warnings,
    )


class _HostClock:
    """Steps on the CPU: the host's monotonic clock."""

    def now(self) -> Any:
        """A moment."""
        return time.perf_counter()

    def wait(self) -> None:
        """Nothing is outstanding on the CPU."""

    def seconds(self, start: Any, end: Any) -> float:
        """From one moment to another."""
        return float(end - start)


class _EventClock:
    """Steps on an accelerator: events in its stream, so that the host may run ahead."""

    def __init__(self, device: str) -> None:
        self._device = device

    def now(self) -> Any:
        """An event recorded in the current stream."""
        event = torch.Event(self._device, enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        """Until everything submitted has run."""
        torch.accelerator.synchronize()

    def seconds(self, start: Any, end: Any) -> float:
        """From one event to another; both must have happened."""
        return float(start.elapsed_time(end)) / 1e3


class _Stopwatch(StepObserver):
    """Marks the beginning and the end of each step, and decides when the warm-up is over."""

    def __init__(self, protocol: TrainerConfig, clock: _HostClock | _EventClock, applied: Applied) -> None:
        self._protocol, self._clock, self._applied = protocol, clock, applied
        self._marks: list[tuple[Any, Any]] = []
        self._start: Any = None
        self.warmup_steps: int | None = None
        self.steady = False

    def on_step_start(self, index: int, batch: Batch) -> None:  # noqa: ARG002
        self._start = self._clock.now()

    def on_phase(self, phase: str) -> None:
        if phase == "backward" and not self._marks:
            self._applied.verify()

    def on_step_end(self, index: int) -> bool:
        self._marks.append((self._start, self._clock.now()))
        done = index + 1
        if self.warmup_steps is None:
            self._clock.wait()
            self.steady = self._is_steady(done)
            if self.steady or done >= self._protocol.warmup_max_steps:
                self.warmup_steps = done
            return False
        return done >= self.warmup_steps + self._protocol.steps

    def timed_steps(self) -> list[float]:
        """Seconds of each step after the warm-up."""
        self._clock.wait()
        return [self._clock.seconds(start, end) for start, end in self._marks[self.warmup_steps :]]

    def _is_steady(self, done: int) -> bool:
        if done < max(self._protocol.warmup_min_steps, _STEADY_WINDOW):
            return False
        last = [self._clock.seconds(start, end) for start, end in self._marks[-_STEADY_WINDOW:]]
        return max(last) - min(last) <= self._protocol.steady_within * statistics.median(last)


def peak_rate(config: CellConfig, hardware: HardwareConfig) -> tuple[float, str]:
    """The denominator of MFU and HFU in FLOP/s, and where it comes from; 0 where there is none."""
    precision = "fp32" if config.precision == "fp32" else "bf16"
    stated = hardware.peak_flops_per_s.get(precision)
    if stated:
        return stated, f"{hardware.name}, dense {precision} peak: {hardware.source}"
    if config.device != "cpu":
        return 0.0, f"none: no {precision} peak is known for {hardware.name}"
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    what = f"{precision} product of {_GEMM_SIZE} x {_GEMM_SIZE} matrices on {config.threads} threads"
    return _measured_gemm_rate(dtype), f"{MEASURED}{what}"


def _measured_gemm_rate(dtype: torch.dtype) -> float:
    a = torch.ones(_GEMM_SIZE, _GEMM_SIZE, dtype=dtype)
    best = float("inf")
    for _ in range(_GEMM_REPEATS):
        start = time.perf_counter()
        torch.mm(a, a)
        best = min(best, time.perf_counter() - start)
    return 2 * _GEMM_SIZE**3 / best


def _unsteady(protocol: TrainerConfig) -> str:
    return (
        f"steps still varied by more than {protocol.steady_within:.0%} after "
        f"{protocol.warmup_max_steps} warm-up steps"
    )

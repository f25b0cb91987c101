"""Reads a :class:`~suite.measure.tracker.MemoryLog`: peaks, phases, what is alive at the peak and why."""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from suite.measure.tracker import Allocation, Event, MemoryLog

# A gradient buffer is one that lives from step to step, as frameworks that shard keep it.
STATIC = frozenset({"parameter", "buffer", "optimizer_state", "gradient_buffer"})
# Alive because of the forward: kept by it, rebuilt from it, back from where it was kept, or a gradient on
# its way back.
ACTIVATIONS = frozenset({"activation", "recomputed", "restored", "activation_gradient"})
PHASES = ("forward", "loss", "backward", "optimizer")
_CURVE_POINTS = 600


@dataclass(frozen=True)
class StepAccount:
    """One step's memory. Bytes; event indices are relative to the start of the step."""

    peak_bytes: int
    peak_event: int
    peak_phase: str
    peak_alive: list[Allocation]
    phase_peaks: dict[str, int]
    phase_ends: dict[str, int]
    start_by_kind: dict[str, int]
    activation_bytes: int
    saved: list[Allocation]
    curve: list[tuple[int, int, str]]

    @property
    def saved_bytes(self) -> int:
        """Alive when the forward ends and born in it: kept for backward, the model's output included."""
        return sum(a.nbytes for a in self.saved)

    @property
    def static_bytes(self) -> int:
        """Parameters, buffers and optimizer states at the start of the step."""
        return sum(n for kind, n in self.start_by_kind.items() if kind in STATIC)

    def saved_under(self, prefix: str) -> int:
        """The saved bytes that were born in the module ``prefix`` or below it."""
        return sum(a.nbytes for a in self.saved if f"{a.module}.".startswith(f"{prefix}."))

    def top_tensors(self, count: int = 10) -> list[dict[str, Any]]:
        """The largest storages alive at the peak, largest first."""
        largest = sorted(self.peak_alive, key=lambda a: -a.nbytes)[:count]
        return [
            {
                "bytes": a.nbytes,
                "operator": a.operator,
                "module": a.module,
                "shape": list(a.shape),
                "dtype": a.dtype,
                "phase": a.phase,
                "kind": a.kind,
                "name": a.name,
            }
            for a in largest
        ]

    def composition(self) -> dict[str, int]:
        """Bytes alive at the peak by kind."""
        return _sum_by_kind(self.peak_alive)

    def sampled_curve(self) -> list[tuple[int, int, str]]:
        """The curve in a size that a plot can hold: evenly, and every phase's start and peak."""
        keep = {0, len(self.curve) - 1, max(self.peak_event, 0)}
        best: dict[str, int] = {}
        for position, (_, live, phase) in enumerate(self.curve):
            if position and phase != self.curve[position - 1][2]:
                keep.update((position - 1, position))
            if live > self.curve[best.get(phase, position)][1] or phase not in best:
                best[phase] = position
        stride = max(1, len(self.curve) // _CURVE_POINTS)
        keep.update(range(0, len(self.curve), stride), best.values())
        return [self.curve[i] for i in sorted(keep)]


def account_step(log: MemoryLog, step: int) -> StepAccount:
    """The account of step ``step`` (0 is the first).

    Raises ValueError if the log has no such step or nothing happened in it.
    """
    begin, end = _bounds(log, step)
    if begin >= end:
        raise ValueError(f"step {step} has no memory events")
    alive: dict[int, Allocation] = {}
    for event in log.events[:begin]:
        _apply(alive, log, event)
    start_by_kind = _sum_by_kind(alive.values())
    live = sum(a.nbytes for a in alive.values())
    activations = sum(a.nbytes for a in alive.values() if a.kind in ACTIVATIONS)
    at_start = dict(alive)
    peak, peak_event, peak_phase = live, -1, "idle"
    activation_peak = activations
    phase_peaks: dict[str, int] = defaultdict(int)
    curve: list[tuple[int, int, str]] = []
    ends: dict[str, int] = {}
    saved: list[Allocation] = []
    boundaries = _phase_ends(log, begin, end)
    for position in range(begin, end):
        for phase in boundaries.get(position, ()):
            ends[phase] = live
            if phase == "forward":
                saved = _saved(alive, at_start)
        event = log.events[position]
        _apply(alive, log, event)
        allocation = log.allocations[event.index]
        live += event.sign * allocation.nbytes
        if allocation.kind in ACTIVATIONS:
            activations += event.sign * allocation.nbytes
            activation_peak = max(activation_peak, activations)
        phase_peaks[event.phase] = max(phase_peaks[event.phase], live)
        curve.append((position - begin, live, event.phase))
        if live > peak:
            peak, peak_event, peak_phase = live, position - begin, event.phase
    for phase in boundaries.get(end, ()):
        ends[phase] = live
    return StepAccount(
        peak_bytes=peak,
        peak_event=peak_event,
        peak_phase=peak_phase,
        peak_alive=_alive_after(log, at_start, log.events[begin : begin + peak_event + 1]),
        phase_peaks={p: phase_peaks[p] for p in PHASES if p in phase_peaks},
        phase_ends={p: ends[p] for p in PHASES if p in ends},
        start_by_kind=start_by_kind,
        activation_bytes=activation_peak,
        saved=saved,
        curve=curve,
    )


def _bounds(log: MemoryLog, step: int) -> tuple[int, int]:
    if not 0 <= step < len(log.step_starts):
        raise ValueError(f"step {step} of {len(log.step_starts)}")
    following = log.step_starts[step + 1 :]
    return log.step_starts[step], following[0] if following else len(log.events)


def _phase_ends(log: MemoryLog, begin: int, end: int) -> dict[int, list[str]]:
    """Event position to the phases that end just before it."""
    starts = [(at, phase) for at, phase in log.phase_starts if begin <= at <= end]
    ends: dict[int, list[str]] = defaultdict(list)
    for (_, phase), (next_at, _) in itertools.pairwise(starts):
        ends[next_at].append(phase)
    return ends


def _saved(alive: dict[int, Allocation], at_start: dict[int, Allocation]) -> list[Allocation]:
    return [a for i, a in alive.items() if i not in at_start and a.kind == "activation"]


def _apply(alive: dict[int, Allocation], log: MemoryLog, event: Event) -> None:
    if event.sign > 0:
        alive[event.index] = log.allocations[event.index]
    else:
        alive.pop(event.index, None)


def _alive_after(log: MemoryLog, at_start: dict[int, Allocation], events: list[Event]) -> list[Allocation]:
    alive = dict(at_start)
    for event in events:
        _apply(alive, log, event)
    return list(alive.values())


def _sum_by_kind(allocations: Iterable[Allocation]) -> dict[str, int]:
    totals: dict[str, int] = defaultdict(int)
    for allocation in allocations:
        totals[allocation.kind] += allocation.nbytes
    return dict(totals)

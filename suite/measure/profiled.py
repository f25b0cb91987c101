"""The same log as the tracker's, of code that a dispatch mode cannot look into: from torch's profiler.

A compiled graph takes its buffers from the allocator and not from operators. The allocator reports
every block to the profiler, on the CPU with its exact size and on an accelerator as rounded by the
caching allocator. What a kernel allocates and frees inside is seen too, and which module asked is not:
the operator alone is known, or the graph's name where a fused kernel made it.

Read from the trace that the profiler exports, which is its documented format.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from suite.measure.tracker import KIND_BY_PHASE, Allocation, Event, MemoryLog

_PHASE = "suite.phase."
_MEMORY = "[memory]"
_CPU = 0  # torch's number for the device type
_SPANS = ("cpu_op", "user_annotation")


@dataclass(frozen=True)
class _Mark:
    """That the block at ``address`` is of ``kind``, said when the phase ``phase`` had just ended."""

    address: int
    kind: str
    name: str


class MemoryProfiler:
    """Writes a :class:`MemoryLog` of the step ``step``, counted from 0, and of no other.

    Used as :class:`~suite.measure.tracker.MemoryTracker` is; the log is there when the context is left.
    """

    def __init__(self, device_type: str, step: int) -> None:
        self.log = MemoryLog()
        self.phase = "idle"
        self._on_cpu = device_type == "cpu"
        self._step, self._steps = step, 0
        self._marks: list[_Mark] = []
        self._profile: Any = None

    def begin_step(self) -> None:
        """Start the profiler if this is the step."""
        if self._steps == self._step:
            self.log.step_starts.append(len(self.log.events))
            self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)
            self._profile.start()
        self._steps += 1

    def begin_phase(self, phase: str) -> None:
        """Mark that ``phase`` begins."""
        self.phase = phase
        if self._profile is not None:
            with record_function(_PHASE + phase):
                pass

    def mark(self, tensor: torch.Tensor, kind: str, name: str) -> None:
        """Say what the storage of ``tensor`` is for: one that exists before the step, or a gradient."""
        storage = tensor.untyped_storage()
        address, nbytes = storage.data_ptr(), storage.nbytes()
        if self._profile is not None:
            self._marks.append(_Mark(address, kind, name))
        elif self._steps == self._step and nbytes and kind != "gradient":  # those of a step before are gone
            self._enter_existing(address, tensor, nbytes, kind, name)

    def __enter__(self) -> "MemoryProfiler":
        """Nothing: the profiler starts with its step."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and read what the profiler saw."""
        if self._profile is None:
            return
        self._profile.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            self._profile.export_chrome_trace(str(path))
            trace = json.loads(path.read_bytes())["traceEvents"]
        self._read(trace)

    def _enter_existing(
        self, address: int, tensor: torch.Tensor, nbytes: int, kind: str, name: str
    ) -> None:
        # Once each: a tied weight has two names, and a buffer may be a view.
        if all(known.address != address for known in self._marks):
            self._marks.append(_Mark(address, kind, name))
            dtype = str(tensor.dtype).removeprefix("torch.")
            self._born(Allocation(nbytes, "", "", "idle", tuple(tensor.shape), dtype, kind, name))

    def _born(self, allocation: Allocation) -> int:
        index = len(self.log.allocations)
        self.log.allocations.append(allocation)
        self.log.events.append(Event(index, 1, allocation.phase))
        return index

    def _read(self, trace: list[dict[str, Any]]) -> None:
        gradients = {m.address: m for m in self._marks if m.kind == "gradient"}
        alive: dict[int, int] = {}
        phase = "idle"
        for moment, operator in _in_order(trace):
            name: str = moment["name"]
            if name.startswith(_PHASE):
                phase = name.removeprefix(_PHASE)
                self.log.phase_starts.append((len(self.log.events), phase))
                if phase == "optimizer":
                    self._name_gradients(gradients, alive)
                continue
            block = moment["args"]
            address, nbytes = int(block["Addr"]), int(block["Bytes"])
            if (int(block["Device Type"]) == _CPU) != self._on_cpu:
                continue
            if nbytes > 0:
                kind = KIND_BY_PHASE.get(phase, "other")
                alive[address] = self._born(Allocation(nbytes, operator, "", phase, (), "", kind))
            elif address in alive:
                self.log.events.append(Event(alive.pop(address), -1, phase))

    def _name_gradients(self, gradients: dict[int, _Mark], alive: dict[int, int]) -> None:
        for address, mark in gradients.items():
            if address in alive:
                allocation = self.log.allocations[alive[address]]
                allocation.kind, allocation.name = mark.kind, mark.name


def _in_order(trace: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    """Each block's birth or end and each beginning of a phase, with the innermost operator it is in."""
    spans = [e for e in trace if e.get("ph") == "X" and e.get("cat") in _SPANS]
    moments = [e for e in trace if e.get("name") == _MEMORY and "Addr" in e.get("args", {})]
    inside: dict[Any, list[dict[str, Any]]] = {}
    # Spans first where they begin at the same nanosecond: what is in them comes after.
    ordered = sorted([*spans, *moments], key=lambda e: (float(e["ts"]), e["name"] == _MEMORY))
    for event in ordered:
        stack = inside.setdefault(event.get("tid"), [])
        while stack and float(stack[-1]["ts"]) + float(stack[-1]["dur"]) < float(event["ts"]):
            stack.pop()
        if event["name"] == _MEMORY:
            yield event, str(stack[-1]["name"]) if stack else ""
        elif event["name"].startswith(_PHASE):
            yield event, ""
        else:
            stack.append(event)

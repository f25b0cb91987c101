"""A forward and backward and an optimizer's two steps, laid out as the memory pass would log them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from suite.measure.tracker import Allocation, Event, MemoryLog
from suite.policies.making import HOST
from suite.predict.trace.expand import Expanded
from suite.predict.trace.forward_backward import RawTrace
from suite.predict.trace.optimizer import OptimizerTrace, Parameters

_BLOCK = re.compile(r"^blocks\.(\d+)\.")
_FIRST = "blocks.0."


@dataclass(frozen=True)
class Static:
    """What is alive when a step begins, of the whole trunk.

    Attributes:
        allocations: parameters and buffers.
        batch: the batch's tensors, in the order in which they are let go of.
        names: of the parameters, in the order of the optimizer.
        shapes: their shapes and dtypes.
        leftover: the shallow trace's allocations that the loop holds beyond backward.
    """

    allocations: tuple[Allocation, ...]
    batch: tuple[Allocation, ...]
    names: tuple[str, ...]
    shapes: Parameters
    leftover: tuple[int, ...]

    @classmethod
    def of(cls, raw: RawTrace, depth: int) -> "Static":
        """Of a trunk of ``depth`` blocks, all of which have the parameters and buffers of the first."""
        found = [raw.log.allocations[index] for index in raw.static]
        named = whole_names([p.name for p in raw.parameters], depth)
        by_name = {p.name: p for p in raw.parameters}
        facts = [by_name[_BLOCK.sub(_FIRST, name)] for name in named]
        kinds = ("parameter", "buffer")
        allocations = [
            replace(known[_BLOCK.sub(_FIRST, name)], name=name)
            for kind in kinds
            for known in [{a.name: a for a in found if a.kind == kind}]
            for name in whole_names(list(known), depth)
        ]
        return cls(
            tuple(allocations),
            tuple(raw.log.allocations[index] for index in raw.batch),
            tuple(named),
            tuple((fact.shape, fact.dtype) for fact in facts),
            tuple(raw.leftover),
        )


def whole_names(shallow: Sequence[str], depth: int) -> list[str]:
    """The names of a model of ``depth`` blocks, block by block, from those of a shallower one."""
    first = [name for name in shallow if name.startswith(_FIRST)]
    found: list[str] = []
    for name in shallow:
        if not _BLOCK.match(name):
            found.append(name)
        elif first and name == first[0]:
            found += [_BLOCK.sub(f"blocks.{index}.", n) for index in range(depth) for n in first]
    return found


@dataclass(frozen=True)
class Steps:
    """Two steps: on the device, and on the host, where a policy keeps anything there."""

    log: MemoryLog
    host_log: MemoryLog


def lay_out_steps(expanded: Expanded, static: Static, optimizer: OptimizerTrace) -> Steps:
    """The first step, in which the optimizer's states are born, and the steady one."""
    writers = _Writer(host=False), _Writer(host=True)
    for writer in writers:
        writer.bear_all(static.allocations)
        _step(writer, expanded, static, optimizer, optimizer.first)
        states = {index for index, _, _ in optimizer.states}
        _step(writer, expanded, static, optimizer, [e for e in optimizer.steady if e[0] not in states])
    return Steps(writers[0].log, writers[1].log)


def _step(
    writer: "_Writer",
    expanded: Expanded,
    static: Static,
    optimizer: OptimizerTrace,
    events: Iterable[tuple[int, int]],
) -> None:
    batch = writer.bear_all(static.batch)
    writer.log.step_starts.append(len(writer.log.events))
    begins: dict[int, list[str]] = {}
    for at, phase in expanded.phases:
        begins.setdefault(at, []).append(phase)
    here: dict[int, int] = {}
    for at, (index, sign) in enumerate(expanded.events):
        writer.begin(begins.pop(at, ()))
        writer.event(here, expanded.allocations, index, sign)
    writer.begin(begins.pop(len(expanded.events), ()))
    steps: dict[int, int] = {}
    named = _named_states(optimizer, static.names)
    for index, sign in events:
        writer.event(steps, named, index, sign)
    left = {expanded.origin[i]: i for i in expanded.alive()}
    loss, copy = (left[index] for index in static.leftover)
    writer.event(here, expanded.allocations, loss, -1)
    gradients = {expanded.allocations[i].name: i for i in expanded.alive()}
    for index in [i for i in here if i != copy and i not in gradients.values()]:
        writer.event(here, expanded.allocations, index, -1)  # what the graph held, which went with the loss
    for name in static.names:
        if name in gradients:
            writer.event(here, expanded.allocations, gradients[name], -1)
    writer.begin(["idle"])
    writer.event(here, expanded.allocations, copy, -1)
    for index in reversed(batch):
        writer.free(index)


def _named_states(optimizer: OptimizerTrace, names: Sequence[str]) -> list[Allocation]:
    found = list(optimizer.allocations)
    for index, owner, state in optimizer.states:
        found[index] = replace(found[index], name=f"{names[owner]}.{state}")
    return found


class _Writer:
    """Writes the log of one place: the device's, or the host's."""

    def __init__(self, *, host: bool) -> None:
        self.log = MemoryLog()
        self._host = host
        self._phase = "idle"

    def begin(self, phases: Iterable[str]) -> None:
        for phase in phases:
            self._phase = phase
            self.log.phase_starts.append((len(self.log.events), phase))

    def bear_all(self, allocations: Sequence[Allocation]) -> list[int]:
        return [] if self._host else [self._bear(allocation) for allocation in allocations]

    def event(
        self, known: dict[int, int], allocations: Sequence[Allocation], index: int, sign: int
    ) -> None:
        """The birth or the end of ``allocations[index]``, which ``known`` remembers as long as it lives."""
        if (allocations[index].kind == HOST) != self._host:
            return
        if sign > 0:
            known[index] = self._bear(allocations[index])
        else:
            self.free(known.pop(index))

    def free(self, index: int) -> None:
        self.log.events.append(Event(index, -1, self._phase))

    def _bear(self, allocation: Allocation) -> int:
        index = len(self.log.allocations)
        self.log.allocations.append(allocation)
        self.log.events.append(Event(index, 1, self._phase))
        return index

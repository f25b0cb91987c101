"""What torch's CPU allocator says of a cell's steady step: every block it gives out and takes back.

Nothing here knows of storages, marks or :mod:`suite.measure.tracker`. The profiler runs from before the
model exists, so that what is alive when the step begins is known from the allocator too. The allocator
also sees what no dispatch mode sees; each such block has its cause:

- ``kernel``: taken and given back inside one operator;
- ``outside``: made in no operator: states of a random generator, and numbers that Python hands over;
- ``host``: a copy that a policy keeps on the host, which only an accelerator has elsewhere.
"""

import contextlib
import functools
import gc
import json
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from suite.config.schema import CellConfig
from suite.measure.setup import build_subject
from suite.policies import Applied
from suite.policies.host import HostCopy
from suite.training.data import Batch
from suite.training.loop import StepObserver, train

CAUSES = ("kernel", "outside", "host")
STEADY_STEP = 1
_MARK, _HOST, _MEMORY = "allocator.step.", "allocator.host.", "[memory]"
_CPU = 0  # torch's number for the device type
# Operators that are never met: what they are made of is.
_DECOMPOSED = "CompositeImplicitAutograd"


@dataclass
class Block:
    """One block of the allocator. ``born`` and ``freed`` count births and ends; -1: never freed."""

    nbytes: int
    operator: str
    born: int
    operator_end_us: float
    freed: int = -1
    cause: str = ""


@dataclass
class AllocatorLog:
    """The blocks in the order of their births.

    Attributes:
        totals: the allocator's own running total after each birth or end, from 0 at the first.
        steady: count of births and ends at which the steady step begins, and at which it ends.
        batch_bytes: of the steady step's batch: numpy's allocator holds it, and not torch's.
    """

    blocks: list[Block] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    steady: tuple[int, int] = (0, 0)
    batch_bytes: int = 0

    @property
    def summed(self) -> list[int]:
        """What ``totals`` must be: births less ends."""
        return self._live(())[0]

    def peak_bytes(self, without: Collection[str] = ()) -> int:
        """The most at once in the steady step, its batch included, but for blocks of those causes."""
        live, start = self._live(without)
        begin, end = self.steady
        return max([start, *live[begin:end]]) + self.batch_bytes

    def _live(self, without: Collection[str]) -> tuple[list[int], int]:
        change: dict[int, int] = defaultdict(int)
        for block in self.blocks:
            if block.cause not in without:
                change[block.born] += block.nbytes
                change[block.freed] -= block.nbytes  # -1, which no moment is, if never
        live, sums = 0, []
        for moment in range(len(self.totals)):
            live += change[moment]
            sums.append(live)
        begin = self.steady[0]
        return sums, sums[begin - 1] if begin else 0


def run_steps(config: CellConfig) -> AllocatorLog:
    """Build the cell's model and train it for two steps, in this process, under the profiler alone."""
    gc.collect()  # what earlier tests left would be taken back during the steps
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        subject = build_subject(config, instrumented=False)
        observer = _Observer(subject.apply_policy())
        train(subject.model, config, observer, max_steps=STEADY_STEP + 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_bytes())["traceEvents"]
    log = _read(trace)
    log.batch_bytes = observer.batch_bytes
    return log


class _Observer(StepObserver):
    """Marks the steady step in the trace."""

    def __init__(self, applied: Applied) -> None:
        self._applied = applied
        self.batch_bytes = 0

    def on_step_start(self, index: int, batch: Batch) -> None:
        if self._applied.host is not None:
            self._applied.host.begin_step()
        self.batch_bytes = sum(t.untyped_storage().nbytes() for t in batch if t is not None)
        _say(f"{_MARK}{index}")

    def on_step_end(self, index: int) -> bool:
        _say(f"{_MARK}{index + 1}")
        return index >= STEADY_STEP


def _say(name: str) -> None:
    with record_function(name):
        pass


class NotedHostCopy(HostCopy):
    """Says in the trace that its block is a copy on the host. Put it in the place of ``HostCopy``."""

    def __init__(self, host: torch.Tensor, *rest: Any) -> None:
        _say(f"{_HOST}{host.untyped_storage().data_ptr()}")
        super().__init__(host, *rest)


def _read(trace: list[dict[str, Any]]) -> AllocatorLog:
    log, at_first = AllocatorLog(), None
    alive: dict[int, Block] = {}
    for event, inside in _in_order(trace):
        name: str = event["name"]
        moment = len(log.totals)
        if name.startswith(_HOST):
            alive[int(name.removeprefix(_HOST))].cause = "host"
        elif name.startswith(_MARK):
            step = int(name.removeprefix(_MARK))
            begin = moment if step == STEADY_STEP else log.steady[0]
            log.steady = begin, moment
        else:
            block = event["args"]
            address, nbytes, total = (int(block[k]) for k in ("Addr", "Bytes", "Total Allocated"))
            at_first = total - nbytes if at_first is None else at_first
            log.totals.append(total - at_first)
            if nbytes > 0:
                alive[address] = _born(nbytes, moment, inside)
                log.blocks.append(alive[address])
            elif address in alive:
                _end(alive.pop(address), moment, float(event["ts"]))
    return log


def _born(nbytes: int, moment: int, inside: list[dict[str, Any]]) -> Block:
    operators = [e for e in inside if e["cat"] == "cpu_op" and _is_kernel(e["name"])]
    if not operators:
        return Block(nbytes, "", moment, 0.0, cause="outside")
    outermost = operators[0]
    return Block(nbytes, outermost["name"], moment, _end_us(outermost))


def _end(block: Block, moment: int, at_us: float) -> None:
    block.freed = moment
    if block.cause == "" and at_us <= block.operator_end_us:
        block.cause = "kernel"


@functools.cache
def _is_kernel(name: str) -> bool:
    """An operator that a dispatch mode meets as one, and not the operators that it is made of."""
    namespace, _, bare = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), bare, None) if bare.isidentifier() else None
    if packet is None:
        return False
    # The first that is bound: some names have further overloads for lists of numbers or named dimensions.
    for overload in packet.overloads():
        with contextlib.suppress(RuntimeError):
            has_kernel = getattr(packet, overload).has_kernel_for_dispatch_key
            return bool(has_kernel("CPU")) or not has_kernel(_DECOMPOSED)
    return False


def _in_order(trace: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Births, ends and marks, each with the spans that it is in, outermost first."""
    spans = [e for e in trace if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation")]
    moments = [e for e in trace if e.get("name") == _MEMORY and e["args"].get("Device Type") == _CPU]
    stack: list[dict[str, Any]] = []
    # Spans first where they begin at the same nanosecond: what is in them comes after.
    for event in sorted([*spans, *moments], key=lambda e: (float(e["ts"]), e["name"] == _MEMORY)):
        while stack and _end_us(stack[-1]) < float(event["ts"]):
            stack.pop()
        if event["name"] == _MEMORY or event["name"].startswith((_MARK, _HOST)):
            yield event, stack
        else:
            stack.append(event)


def _end_us(span: dict[str, Any]) -> float:
    return float(span["ts"]) + float(span["dur"])

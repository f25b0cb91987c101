"""What a traced step is: its allocations in order, and its operators with their work."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from suite.measure.tracker import MemoryLog
from suite.measure.work import Work
from suite.policies import Entry, Region


@dataclass(frozen=True)
class Target:
    """What a trace is for, where that is not this CPU.

    Attributes:
        kernels: a context in which the model runs the target's operators.
        workspace: name of an operator and its arguments to what its kernel allocates and frees itself.
    """

    kernels: Callable[[], AbstractContextManager[object]]
    workspace: Callable[[str, tuple[Any, ...]], int]


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """One call of an operator; calls that are alike in everything here are counted, not repeated.

    Attributes:
        operator: ``aten::mm``.
        module: path of the module at work with the block's index as ``*``; empty outside of any.
        phase: forward, loss, backward or optimizer.
        replay: a forward that ran again in backward.
        flops: torch's count, 2 per multiply-add; 0 for what is not a product.
        read_bytes: of the tensors that go in, each once, as large as the operator sees them.
        written_bytes: of those that come out or are written in place.
        dtype: of the first tensor that comes out, ``float32``.
        shapes: of the tensors that go in.
    """

    operator: str
    module: str
    phase: str
    replay: bool
    flops: int
    read_bytes: int
    written_bytes: int
    dtype: str
    shapes: tuple[tuple[int, ...], ...]


@dataclass
class StepTrace:
    """Two training steps, as the memory pass would log them: the first, then the steady one.

    Attributes:
        log: allocations and events of both steps, byte for byte those of a measured pass.
        host_log: the same of what a policy keeps in host memory.
        host_figures: sums of the steady step by the names of a record; empty where no policy keeps any.
        operators: of the steady step, views left out, with how often each ran.
        work: the same of its forward and its replays, by module of the whole model.
        regions: what the policy recomputes.
        entries: the policy's rules, with their hits in one forward.
        traced_blocks: how many blocks were run; the others are copies of these.
    """

    log: MemoryLog
    host_log: MemoryLog = field(default_factory=MemoryLog)
    host_figures: dict[str, float] = field(default_factory=dict)
    operators: Counter[OperatorRun] = field(default_factory=Counter)
    work: Sequence[Work] = ()
    regions: Sequence[Region] = ()
    entries: Sequence[Entry] = ()
    traced_blocks: int = 0

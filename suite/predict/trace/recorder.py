"""Writes down what a step allocates and what it runs, stretch by stretch of the trunk."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from suite.measure.instrument import ModulePaths
from suite.measure.tracker import Allocation, Event, MemoryTracker
from suite.measure.work import formula_of
from suite.policies.making import HOST, purpose
from suite.predict.trace.step import OperatorRun

_DEVICE = torch.ops.prim.device.default

# Name of an operator and its arguments to the bytes that its kernel allocates and frees itself.
Workspace = Callable[[str, tuple[Any, ...]], int]


@dataclass
class Stretch:
    """What happened between two moments of a step.

    Attributes:
        kind: ``forward`` or ``backward`` of a piece of the trunk, or ``edge``: before, between and after.
        piece: which of the trunk's; -1 of an edge.
        begin: its first event in the log.
        end: the event after its last.
        operators: what ran, with modules as they are called.
        counted: hits and host bytes of each of the policy's rules, when a piece's forward ended.
    """

    kind: str
    piece: int
    begin: int
    end: int = 0
    operators: Counter[OperatorRun] = field(default_factory=Counter)
    counted: tuple[tuple[int, int], ...] = ()


class Recorder(MemoryTracker):
    """A :class:`~suite.measure.tracker.MemoryTracker` that also keeps stretches, and the work in each.

    What a policy keeps in host memory is in the log too, of the kind ``host``.
    """

    _follows_host = True

    def __init__(self, paths: ModulePaths, workspace: Workspace | None = None) -> None:
        super().__init__("cpu", paths)
        self._workspace = workspace
        self.stretches: list[Stretch] = []
        self._open("edge", -1)

    def enter(self, kind: str, piece: int) -> None:
        """A new stretch begins at the next event."""
        self.stretches[-1].end = len(self.log.events)
        self._open(kind, piece)

    def finish(self) -> None:
        """The last stretch ends."""
        self.stretches[-1].end = len(self.log.events)

    def index_of(self, tensor: Tensor) -> int:
        """The allocation of a tensor that is alive."""
        index = self._see(tensor, "")
        assert index is not None, "a tensor without memory, or of another device"
        return index

    def _describe(self, tensor: Tensor, nbytes: int, operator: str) -> Allocation:
        allocation = super()._describe(tensor, nbytes, operator)
        if purpose() == HOST:
            allocation.kind = HOST
        return allocation

    def _open(self, kind: str, piece: int) -> None:
        self.stretches.append(Stretch(kind, piece, len(self.log.events)))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, then enter what it made and what it did."""
        if func is _DEVICE:  # half of all calls: every look at a fake tensor's device is one
            tensor = args[0]
            return tensor.fake_device if isinstance(tensor, FakeTensor) else func(*args)
        output = func(*args, **(kwargs or {}))
        outputs = _tensors((output,))
        for tensor in outputs:
            self._see(tensor, func.name())
        if not func.is_view:
            self._count(func, args, kwargs or {}, output, outputs)
            if self._workspace is not None:
                self._pass_through(self._workspace(func.name(), args), func.name())
        return output

    def _pass_through(self, nbytes: int, operator: str) -> None:
        """Enter what a kernel had beside its output, and has given back."""
        if not nbytes:
            return
        module = self._paths.current if self._paths is not None else ""
        index = len(self.log.allocations)
        found = Allocation(nbytes, operator, module, self.phase, (nbytes,), "uint8", "workspace")
        self.log.allocations.append(found)
        self.log.events += [Event(index, 1, self.phase), Event(index, -1, self.phase)]

    def _count(self, func: OpOverload, args: Any, kwargs: Any, output: Any, outputs: list[Tensor]) -> None:
        formula = formula_of(func)
        inputs = _tensors((*args, *kwargs.values()))
        written = [*outputs, *(inputs[:1] if func._schema.is_mutable and not outputs else ())]
        paths = self._paths
        module = paths.current if paths is not None else ""
        run = OperatorRun(
            operator=func.name(),  # type: ignore[no-untyped-call]
            module=module,
            phase=self.phase,
            replay=self.phase == "backward" and paths is not None and paths.inside_forward,
            flops=0 if formula is None else formula(*args, **kwargs, out_val=output),
            read_bytes=sum(map(_nbytes, inputs)),
            written_bytes=sum(map(_nbytes, written)),
            dtype=str((outputs or inputs or [torch.empty(0)])[0].dtype).removeprefix("torch."),
            shapes=tuple(tuple(t.shape) for t in inputs),
        )
        self.stretches[-1].operators[run] += 1


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among ``values`` and in the sequences among them, each once."""
    found: dict[int, Tensor] = {}
    for value in values:
        if isinstance(value, Tensor):
            found[id(value)] = value
        elif isinstance(value, list | tuple):
            found.update((id(t), t) for t in value if isinstance(t, Tensor))
    return list(found.values())


def _nbytes(tensor: Tensor) -> int:
    """What a kernel touches of ``tensor``: an expanded one is read as large as it is in memory."""
    whole = tensor.numel() * tensor.element_size()
    return min(whole, tensor.untyped_storage().nbytes())

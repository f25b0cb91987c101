"""Live bytes, storage by storage: an exact and deterministic account of a step's memory.

A dispatch mode sees the output of every operator, in forward, in backward and in the optimizer, real
or fake, and whatever selective checkpointing caches, because it follows *storages* (views and
duplicates count once) until they are freed. It does not see what a kernel allocates and frees inside.
"""

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from suite.measure.instrument import ModulePaths
from suite.policies.making import HOST, RESTORED, purpose

# What a storage is for, by the phase it is born in; gradients and states are renamed once known.
KIND_BY_PHASE = {
    "forward": "activation",
    "loss": "activation",
    "backward": "activation_gradient",
    "optimizer": "workspace",
}


@dataclass(slots=True)
class Allocation:
    """One storage: how large, what made it, where and for what."""

    nbytes: int
    operator: str
    module: str
    phase: str
    shape: tuple[int, ...]
    dtype: str
    kind: str
    name: str = ""


@dataclass(slots=True)
class Event:
    """Allocation ``index`` was born (``sign`` 1) or freed (-1)."""

    index: int
    sign: int
    phase: str


@dataclass
class MemoryLog:
    """What happened: allocations, births and frees in order, and where phases and steps begin."""

    allocations: list[Allocation] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    phase_starts: list[tuple[int, str]] = field(default_factory=list)
    step_starts: list[int] = field(default_factory=list)


class MemoryTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes a :class:`MemoryLog` of the storages on one type of device while the mode is entered.

    Copies that a policy keeps on the host are in no device's account, not even in the CPU's.
    """

    _follows_host = False

    def __init__(self, device_type: str, paths: ModulePaths | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.log = MemoryLog()
        self.phase = "idle"
        self._device_type = device_type
        self._paths = paths
        # Address of a live storage to its allocation and to the reference whose callback logs its end.
        self._live: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}

    def begin_step(self) -> None:
        """Mark that a step begins at the next event."""
        self.log.step_starts.append(len(self.log.events))

    def begin_phase(self, phase: str) -> None:
        """Mark that ``phase`` begins at the next event."""
        self.phase = phase
        self.log.phase_starts.append((len(self.log.events), phase))
        if self._paths is not None:
            self._paths.leave_backward()

    def mark(self, tensor: torch.Tensor, kind: str, name: str) -> None:
        """Say what the storage of ``tensor`` is for; it is entered now if it was not known."""
        index = self._see(tensor, "")
        if index is not None:
            allocation = self.log.allocations[index]
            allocation.kind, allocation.name = kind, name

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, then enter the storages that it made."""
        output = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(output):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf, func.name())
        return output

    def _see(self, tensor: torch.Tensor, operator: str) -> int | None:
        if tensor.device.type != self._device_type or tensor.layout != torch.strided:
            return None
        if purpose() == HOST and not self._follows_host:
            return None
        storage = tensor.untyped_storage()
        address, nbytes = storage._cdata, storage.nbytes()
        known = self._live.get(address)
        if known is not None:
            if self.log.allocations[known[0]].nbytes == nbytes:
                return known[0]
            self._forget(address, known[0])  # resized in place
        if nbytes == 0:
            return None
        index = len(self.log.allocations)
        self.log.allocations.append(self._describe(tensor, nbytes, operator))
        self.log.events.append(Event(index, 1, self.phase))
        self._live[address] = (index, weakref.ref(storage, lambda _: self._forget(address, index)))
        return index

    def _describe(self, tensor: torch.Tensor, nbytes: int, operator: str) -> Allocation:
        kind = KIND_BY_PHASE.get(self.phase, "other")
        if purpose() == RESTORED:
            kind = "restored"
        elif self.phase == "backward" and self._paths is not None and self._paths.inside_forward:
            kind = "recomputed"
        return Allocation(
            nbytes=nbytes,
            operator=operator,
            module=self._paths.current if self._paths is not None else "",
            phase=self.phase,
            shape=tuple(tensor.shape),
            dtype=str(tensor.dtype).removeprefix("torch."),
            kind=kind,
        )

    def _forget(self, address: int, index: int) -> None:
        known = self._live.get(address)
        if known is not None and known[0] == index:
            del self._live[address]
            self.log.events.append(Event(index, -1, self.phase))

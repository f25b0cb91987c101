"""Copies in place of what autograd keeps: one for each storage. Imports torch: used by ``apply`` only.

Saved-tensor hooks see tensors, and several of them may view one storage: a norm's input has two readers,
queries and keys are two views of one product. A copy is made of the storage, once, and each tensor is
handed out again by its own size, stride and offset. When backward asks for the first of them the whole
storage comes back, and goes when the last has been read.
"""

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from suite.policies.entries import Entry
from suite.policies.making import RESTORED, making
from suite.units import show_bytes

_LARGEST_SHOWN = 5
_Known = weakref.WeakKeyDictionary[torch.UntypedStorage, tuple[int, weakref.ref["Copy"]]]


class Copy(ABC):
    """What is kept of one storage, and how many tensors are still to be read from it."""

    def __init__(self) -> None:
        self._readers = self._waiting = 0
        self._whole: Tensor | None = None

    def handle(self, tensor: Tensor) -> "Handle":
        """What stands for ``tensor``, a view of the storage."""
        self._readers += 1
        self._waiting += 1
        return Handle(self, tensor.dtype, tensor.size(), tensor.stride(), int(tensor.storage_offset()))

    def read(self) -> Tensor:
        """The storage as a tensor on the device, whole, for one of the readers."""
        self.bring_back()
        whole = self._whole
        assert whole is not None
        self._waiting -= 1
        if self._waiting == 0:
            self._whole = None
            self._waiting = self._readers  # a second backward over the same graph reads them all again
        return whole

    def bring_back(self) -> None:
        """Have the storage on the device, where it is not there already."""
        if self._whole is None:
            with torch.no_grad(), making(RESTORED):
                self._whole = self._restore()

    @abstractmethod
    def _restore(self) -> Tensor:
        """The storage as a new tensor on the device."""


@dataclass(frozen=True)
class Handle:
    """Stands for a saved tensor: a view of the storage that ``copy`` is of."""

    copy: Copy
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int

    def tensor(self) -> Tensor:
        """The tensor as it was saved."""
        whole = self.copy.read()
        with torch.no_grad():
            if whole.dtype == self.dtype:
                return whole.as_strided(self.size, self.stride, self.offset)
            empty = torch.empty(0, dtype=self.dtype, device=whole.device)
            return empty.set_(whole.untyped_storage(), self.offset, self.size, self.stride)


class Copies(ABC):
    """Makes copies, and finds the one there is already.

    Never of a parameter or a buffer, which the model holds anyway; of what all blocks share, which would
    stay for the others; of another device's tensor; or of a storage of less than ``min_bytes``.
    """

    def __init__(self, device: torch.device, min_bytes: int) -> None:
        self._device = device
        self._min_bytes = min_bytes
        # By storage: its version when it was copied, and the copy for as long as anybody can read it.
        self._known: _Known = weakref.WeakKeyDictionary()
        self._left: dict[str, int] = {}

    def keep(self, tensor: Tensor, entry: Entry, stays: frozenset[int] = frozenset()) -> Any:
        """A handle in place of ``tensor``, which ``entry`` counts, or the tensor where it is to stay.

        Args:
            tensor: as autograd or a dispatch mode hands it over.
            entry: its ``hits`` count storages.
            stays: what :func:`storages` says of the tensors that are not to be copied.
        """
        if not self._may_copy(tensor, stays):
            return tensor.detach()  # itself, an output would hold the node that it is an output of
        storage = tensor.untyped_storage()
        known, copy = self._known.get(storage), None
        if known is not None and known[0] == version_of(tensor):
            copy = known[1]()
        if copy is None:
            with torch.no_grad():
                copy = self._copy(tensor.detach(), entry)
            if copy is None:
                return tensor.detach()
            entry.hits += 1
            self._known[storage] = version_of(tensor), weakref.ref(copy)
        return copy.handle(tensor) if self._fits(copy, tensor) else tensor.detach()

    def keep_for(self, module: nn.Module, entry: Entry) -> None:
        """Keep copies in place of what autograd saves while ``module`` runs.

        The first argument is the module's own. The others are the same for all blocks, and stay.
        """
        inner = module.forward

        def forward(x: Any, *shared: Any) -> Any:
            stays = storages([*module.parameters(), *module.buffers(), *tree_leaves(shared)])
            with saved_tensors_hooks(lambda tensor: self.keep(tensor, entry, stays), restore):
                return inner(x, *shared)

        module.forward = forward

    def left(self) -> list[str]:
        """The largest storages that were not copied, and why not."""
        largest = sorted(self._left, key=lambda text: -self._left[text])
        return largest[:_LARGEST_SHOWN]

    def _leave(self, tensor: Tensor, why: str) -> None:
        nbytes = tensor.untyped_storage().nbytes()
        shown = f"{show_bytes(nbytes)} of {str(tensor.dtype).removeprefix('torch.')}, {why}"
        self._left[shown] = nbytes

    def _may_copy(self, tensor: Tensor, stays: frozenset[int]) -> bool:
        if tensor.device.type != self._device.type or tensor.layout != torch.strided:
            return False
        # A storage alone cannot say that it is to be read conjugated or negated.
        if tensor.is_conj() or tensor.is_neg():
            return False
        storage = tensor.untyped_storage()
        if id(storage) in stays:
            return False
        if storage.nbytes() < self._min_bytes:
            self._leave(tensor, f"below policy.min_bytes={show_bytes(self._min_bytes)}")
            return False
        return True

    def _fits(self, copy: Copy, tensor: Tensor) -> bool:  # noqa: ARG002
        """Whether ``tensor`` can be read from the copy that its storage has."""
        return True

    @abstractmethod
    def _copy(self, tensor: Tensor, entry: Entry) -> Copy | None:
        """A copy of the storage of ``tensor``; None where there is to be none."""


def storages(values: Iterable[Any]) -> frozenset[int]:
    """The identities of the storages of the tensors among ``values``, for as long as these are alive."""
    return frozenset(id(value.untyped_storage()) for value in values if isinstance(value, Tensor))


def version_of(tensor: Tensor) -> int:
    """How often the storage was written to: autograd's own count, which has no public name.

    Where there is none (an inference tensor, which autograd never keeps) writes go unseen.
    """
    try:
        return int(tensor._version)
    except (AttributeError, RuntimeError):
        return 0


def restore(kept: Any) -> Tensor:
    """What :meth:`Copies.keep` kept, as it was."""
    tensor: Tensor = kept.tensor() if isinstance(kept, Handle) else kept
    return tensor

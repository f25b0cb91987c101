"""Host memory as the place of what the device has no room for. Imports torch: used by ``apply`` only.

On an accelerator copies run in a stream of their own. The next block's compute hides the copies of the
one before, and its backward those that the block before will need. On the CPU the copies are made all
the same, at once: there is no second memory to save, but the step, the hits and the bytes are the same.
"""

import weakref
from collections import deque
from typing import Any

import torch
from torch import Tensor, nn

from suite.policies.copies import Copies, Copy, version_of
from suite.policies.entries import Entry
from suite.policies.host_ledger import HostLedger
from suite.policies.making import HOST, making
from suite.units import show_bytes


class Lane:
    """Copies between device and host, in order: here and now.

    Outside of an accelerator, or where only fake tensors are on one, nothing runs beside the host.
    """

    asynchronous = False

    def copy(self, target: Tensor, source: Tensor) -> Any:
        """Copy; what is returned is for :meth:`wait`."""
        target.copy_(source)

    def wait(self, done: Any) -> None:
        """What the device computes from now on comes after that copy, and so may reuse its memory."""


class SideStream(Lane):
    """Copies beside the device's compute, by torch's device-independent streams and events.

    Memory of the compute stream's pool is read or written here. Instead of telling the allocator
    (``record_stream``, which frees it at a time nobody knows), both ends of a copy are held until it is
    done or the compute stream waits for it.
    """

    asynchronous = True

    def __init__(self, stream: torch.Stream) -> None:
        self._stream = stream
        self._under_way: deque[tuple[torch.Event, Tensor, Tensor]] = deque()

    def copy(self, target: Tensor, source: Tensor) -> torch.Event:
        """Begin when what is queued so far is done: the source's kernels, or the target's former user's."""
        while self._under_way and self._under_way[0][0].query():
            self._under_way.popleft()
        self._stream.wait_stream(torch.accelerator.current_stream())
        with self._stream:
            target.copy_(source, non_blocking=True)
            done = self._stream.record_event()
        self._under_way.append((done, target, source))
        return done

    def wait(self, done: torch.Event) -> None:
        """Let the compute stream wait, not the host. Earlier copies of this stream are done by then too."""
        if not any(event is done for event, _, _ in self._under_way):
            return
        torch.accelerator.current_stream().wait_event(done)
        while self._under_way.popleft()[0] is not done:
            pass


def lane_of(device: torch.device) -> Lane:
    """The way between the host and ``device``."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    there = accelerator is not None and accelerator.type == device.type
    return SideStream(torch.Stream(device)) if there else Lane()


class HostCopy(Copy):
    """A storage of the device, on the host."""

    def __init__(self, host: Tensor, device: torch.device, lane: Lane, ledger: HostLedger) -> None:
        super().__init__()
        self._host, self._device, self._lane, self._ledger = host, device, lane, ledger
        self._back: Any = None
        ledger.moved(host.nbytes)
        weakref.finalize(self, ledger.freed, host.nbytes).atexit = False

    def read(self) -> Tensor:
        """The storage on the device; what is computed from now on finds it complete."""
        whole = super().read()
        self._lane.wait(self._back)
        return whole

    def _restore(self) -> Tensor:
        whole = torch.empty_like(self._host, device=self._device, pin_memory=False)
        self._back = self._lane.copy(whole, self._host)
        self._ledger.returned(self._host.nbytes)
        return whole


class HostStore(Copies):
    """Keeps tensors on the host, block by block.

    Args:
        device: where the model is.
        min_bytes: smaller storages stay.
        pinned: copies are page-locked where there is an accelerator; without, each makes the host wait.
        cap_bytes: what does not fit under it stays; None for no bound.
    """

    def __init__(
        self, device: torch.device, min_bytes: int, *, pinned: bool = True, cap_bytes: int | None = None
    ) -> None:
        super().__init__(device, min_bytes)
        self.ledger = HostLedger()
        self._lane = lane_of(device)
        self._pinned = pinned and self._lane.asynchronous
        self._cap_bytes = cap_bytes
        self._block = _BlockCopies()

    def follow(self, block: nn.Module) -> None:
        """Call for every block of the policy in forward order, after everything else is done to it.

        What the block before sent away is let go of when this one's forward ends. When this one's
        backward begins, what the block before will need is fetched.
        """
        inner = block.forward

        def forward(*args: Any) -> Any:
            before, this = self._block, _BlockCopies()
            self._block = this
            out = inner(*args)
            before.let_go(self._lane)

            def begin_backward(_: Tensor) -> None:
                this.let_go(self._lane)  # the last block has no other that does,
                this.fetch()  # nor any that fetched for it
                before.fetch()

            if out.requires_grad:
                out.register_hook(begin_backward)
            return out

        block.forward = forward

    def _copy(self, tensor: Tensor, entry: Entry) -> Copy | None:
        nbytes = tensor.untyped_storage().nbytes()
        if self._cap_bytes is not None and self.ledger.live_bytes + nbytes > self._cap_bytes:
            self.ledger.over_cap(nbytes)
            self._leave(tensor, f"beyond policy.host_cap={show_bytes(self._cap_bytes)}")
            return None
        whole = _whole(tensor)
        with making(HOST):
            host = torch.empty(whole.shape, dtype=whole.dtype, device="cpu", pin_memory=self._pinned)
            done = self._lane.copy(host, whole)
        copy = HostCopy(host, tensor.device, self._lane, self.ledger)
        entry.host_bytes += nbytes
        self._block.add(copy, tensor, done if self._lane.asynchronous else None)
        return copy


def _whole(tensor: Tensor) -> Tensor:
    """The storage of ``tensor`` as one row: in its dtype, where that divides it into whole elements."""
    count, rest = divmod(tensor.untyped_storage().nbytes(), tensor.itemsize)
    if not rest:
        return tensor.as_strided((count,), (1,), 0)
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


class _BlockCopies:
    """What one forward of one block sent to the host."""

    def __init__(self) -> None:
        self._copies: list[weakref.ref[HostCopy]] = []
        self._leaving: list[tuple[torch.Event, Tensor, int]] = []

    def add(self, copy: HostCopy, tensor: Tensor, done: torch.Event | None) -> None:
        """``done`` is of the copy under way, if any: ``tensor`` must not change before."""
        self._copies.append(weakref.ref(copy))
        if done is not None:
            self._leaving.append((done, tensor, version_of(tensor)))

    def let_go(self, lane: Lane) -> None:
        """Free what has left. Raises RuntimeError if it was written to while it was on its way."""
        for done, tensor, version in self._leaving:
            lane.wait(done)
            if version_of(tensor) != version:
                shape = tuple(tensor.shape)
                raise RuntimeError(f"a tensor of {shape} was changed in place while it was being offloaded")
        self._leaving.clear()

    def fetch(self) -> None:
        """Bring back what somebody still needs, the last first: so backward asks for it."""
        for reference in reversed(self._copies):
            copy = reference()
            if copy is not None:
                copy.bring_back()

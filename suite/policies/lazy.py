"""Lazy rebuild: a saved tensor is replaced by the call that makes it. Imports torch: for ``apply`` only.

While a block runs, saved-tensor hooks are active. A module that was chosen (a *producer*) remembers how
it was called; whatever autograd then saves of it, a tensor of its inside or its output in the hands of
its readers, becomes a handle on that call. When backward asks for the first of them the call is made
again, once for all of them, and each is let go when its last reader has it.
"""

import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from suite.policies.entries import Entry


@dataclass(frozen=True)
class _Handle:
    """Stands for a saved tensor: which result of which call, and its view of that result's storage."""

    call: "_Call"
    position: int
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


class _Call:
    """One call of a producer in the forward, and what it is made again from.

    Its results are the tensors of the inside, in the order in which autograd saves them, which is the same
    in every run, and then the outputs.
    """

    def __init__(self, produce: Callable[..., Any], args: Iterable[Any], *, draws: bool) -> None:
        self._produce = produce
        self._args = list(args)
        self._needs_grad = [isinstance(a, Tensor) and a.requires_grad for a in self._args]
        self._device = next(a.device.type for a in self._args if isinstance(a, Tensor))
        self._autocast = torch.is_autocast_enabled(self._device), torch.get_autocast_dtype(self._device)
        self._random = _random_states(self._device) if draws else None
        self._results: list[Tensor | None] = []
        # Handles on each result, and how many of them backward has not asked for yet.
        self._handles: dict[int, int] = {}
        self._waiting: dict[int, int] = {}

    def keep_args(self, keep: Callable[[Tensor], Any]) -> None:
        """Replace the arguments by what the block's hooks keep of them."""
        self._args = [keep(a.detach()) if isinstance(a, Tensor) else a for a in self._args]

    def handle(self, position: int, tensor: Tensor) -> _Handle:
        """A handle on the result at ``position``, whose storage ``tensor`` views."""
        self._handles[position] = self._handles.get(position, 0) + 1
        return _Handle(self, position, tensor.size(), tensor.stride(), int(tensor.storage_offset()))

    def result(self, handle: _Handle) -> Tensor:
        """The tensor that ``handle`` stands for. The call lets go of it when nobody else waits for it."""
        position = handle.position
        tensor = self._results[position] if self._results else None
        if tensor is None:  # the first reader, or a second backward over the same graph
            self._results, self._waiting = self._again(), dict(self._handles)
            tensor = self._results[position]
            assert tensor is not None
        self._waiting[position] -= 1
        if not self._waiting[position]:
            self._results[position] = None
        return tensor.as_strided(handle.size, handle.stride, handle.offset)

    def _again(self) -> list[Tensor | None]:
        restored = [_restore(a) for a in self._args]
        args = [
            a.detach().requires_grad_() if needs else a
            for a, needs in zip(restored, self._needs_grad, strict=True)
        ]
        given = _storages(args)
        inside: list[Tensor] = []

        def pack(tensor: Tensor) -> None:
            if not _is_given(tensor, given):
                inside.append(tensor.detach())

        enabled, dtype = self._autocast
        # Grad mode on: autograd must save the same tensors in the same order as the first time.
        with (
            torch.enable_grad(),
            torch.autocast(self._device, dtype=dtype, enabled=enabled, cache_enabled=False),
            _drawing(self._random, self._device),
            saved_tensors_hooks(pack, _never),
        ):
            outputs = _as_tuple(self._produce(*args))
        results = [*inside, *(output.detach() for output in outputs)]
        return [tensor if i in self._handles else None for i, tensor in enumerate(results)]


class LazyBlock:
    """Makes chosen modules of one block producers, in the forwards from now on."""

    def __init__(self, block: nn.Module) -> None:
        # Address of an output's storage, alive, to the call it came from, its position and its entry.
        self._outputs: dict[int, tuple[weakref.ref[Any], _Call, int, Entry]] = {}
        inner = block.forward

        def forward(*args: Any) -> Any:
            try:
                with saved_tensors_hooks(self._keep, _restore):
                    return inner(*args)
            finally:
                self._outputs.clear()

        block.forward = forward

    def produce(self, module: nn.Module, entry: Entry, *, draws: bool, cast: bool) -> None:
        """Rebuild what ``module`` makes when backward asks for it.

        Args:
            module: is called with its arguments by position.
            entry: counts the saved tensors that become handles.
            draws: the module draws random numbers, which must be the same the second time.
            cast: only matrix products read the output: cast it as they would under autocast, which
                would keep a copy of its own.
        """
        inner = module.forward

        def produce(*args: Any) -> Any:
            out = inner(*args)
            device = args[0].device.type
            if cast and torch.is_autocast_enabled(device):
                return out.to(torch.get_autocast_dtype(device))
            return out

        def forward(*args: Any) -> Any:
            if not torch.is_grad_enabled():
                return produce(*args)
            call = _Call(produce, args, draws=draws)
            given = _storages(args)
            inside = 0

            def pack(tensor: Tensor) -> Any:
                nonlocal inside
                if _is_given(tensor, given):
                    return self._keep(tensor)
                entry.hits += 1
                inside += 1
                return call.handle(inside - 1, tensor)

            with saved_tensors_hooks(pack, _restore):
                out = produce(*args)
            call.keep_args(self._keep)
            for position, output in enumerate(_as_tuple(out), start=inside):
                self._remember(output, call, position, entry)
            return out

        module.forward = forward

    def _remember(self, output: Tensor, call: _Call, position: int, entry: Entry) -> None:
        storage = output.untyped_storage()
        address = storage._cdata
        alive = weakref.ref(storage, lambda _: self._outputs.pop(address, None))
        self._outputs[address] = (alive, call, position, entry)

    def _keep(self, tensor: Tensor) -> Any:
        """A handle where ``tensor`` is a view of a producer's output, otherwise the tensor."""
        known = self._outputs.get(tensor.untyped_storage()._cdata)
        if known is None:
            return tensor.detach()  # itself, an output would hold the node that it is an output of
        _, call, position, entry = known
        entry.hits += 1
        return call.handle(position, tensor)


def _never(_: None) -> Tensor:
    raise AssertionError("the graph of a replay has no backward")


def _restore(kept: Any) -> Any:
    return kept.call.result(kept) if isinstance(kept, _Handle) else kept


def _is_given(tensor: Tensor, given: set[int]) -> bool:
    """Whether a saved tensor is an argument of the call or a parameter: not the call's own to rebuild."""
    return isinstance(tensor, nn.Parameter) or tensor.untyped_storage()._cdata in given


def _storages(values: Iterable[Any]) -> set[int]:
    return {value.untyped_storage()._cdata for value in values if isinstance(value, Tensor)}


def _as_tuple(out: Any) -> tuple[Tensor, ...]:
    return out if isinstance(out, tuple) else (out,)


def _random_states(device: str) -> tuple[Tensor, Tensor | None]:
    """Of the host and of the accelerator."""
    host = torch.get_rng_state()
    return host, None if device == "cpu" else torch.get_device_module(device).get_rng_state()


def _drawing(states: tuple[Tensor, Tensor | None] | None, device: str) -> AbstractContextManager[Any]:
    """Draw from ``states`` inside, and go on afterwards as if nothing had been drawn."""
    if states is None:
        return nullcontext()
    host, there = states
    stack = ExitStack()
    if there is None:
        stack.enter_context(torch.random.fork_rng(devices=[]))
    else:
        current = torch.accelerator.current_device_index()
        stack.enter_context(torch.random.fork_rng(devices=[current], device_type=device))
        torch.get_device_module(device).set_rng_state(there)
    torch.set_rng_state(host)
    return stack

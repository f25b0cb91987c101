"""Which module is at work: told by wrapping each module's forward before a policy is applied.

Because the wrapper is inside any checkpointed region, a replay passes through it again: tensors that
are rebuilt know that they are, and forwards can be counted. Backward is followed by gradient hooks on
each module's outputs.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

# Set on outputs that already carry a hook, so that the innermost module keeps the name.
_MARK = "_suite_module_path"


class ModulePaths:
    """Follows the module that runs, in forward, in a replay and in backward.

    Attributes:
        forwards: how often the forward of each module path began, replays included.
    """

    def __init__(self, model: nn.Module) -> None:
        self.forwards: Counter[str] = Counter()
        self._stack: list[str] = []
        self._backward = ""
        for path, module in model.named_modules():
            module.forward = partial(self._forward, path, module.forward)

    @property
    def current(self) -> str:
        """Path of the module at work; empty outside of any."""
        return self._stack[-1] if self._stack else self._backward

    @property
    def inside_forward(self) -> bool:
        """Whether a module's forward is running: in the backward phase that is a replay."""
        return bool(self._stack)

    def leave_backward(self) -> None:
        """Forget the module that backward was last in."""
        self._backward = ""

    def _forward(self, path: str, inner: Any, *args: Any, **kwargs: Any) -> Any:
        self.forwards[path] += 1
        with self._entered(path):
            output = inner(*args, **kwargs)
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                self._follow(tensor, path)
        return output

    @contextmanager
    def _entered(self, path: str) -> Iterator[None]:
        # A replay that stops early leaves by an exception: the stack must survive it.
        self._stack.append(path)
        try:
            yield
        finally:
            self._stack.pop()

    def _follow(self, tensor: torch.Tensor, path: str) -> None:
        if not hasattr(tensor, _MARK):
            setattr(tensor, _MARK, path)
            tensor.register_hook(partial(self._enter_backward, path))  # type: ignore[no-untyped-call]

    def _enter_backward(self, path: str, _: torch.Tensor) -> None:
        self._backward = path

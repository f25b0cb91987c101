"""A region that keeps operator outputs elsewhere: on the host. Imports torch: used by ``apply`` only.

torch's ``CheckpointPolicy.MUST_CPU_OFFLOAD`` is for graphs; eager selective checkpointing takes it for
"recompute" without a word. So this is a pair of modes of our own.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_map_only

from suite.policies.copies import restore
from suite.policies.entries import Entry
from suite.policies.selective import Selection

# Of each operator that is kept, call by call, what stands for its output.
_Kept = defaultdict[Any, list[Any]]
_HANDED_OUT = object()


# From an output and the entry that keeps it to what stands for it.
Keep = Callable[[Tensor, Entry], Any]


def hosted_contexts(
    selection: Selection, keep: Keep
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The pair that ``checkpoint(context_fn=...)`` asks for; ``keep`` gets what ``selection`` keeps.

    As with torch's own pair, an output is handed out once: there is no second backward.
    """
    kept: _Kept = defaultdict(list)
    return _Keep(selection, keep, kept), _HandOut(selection, kept)


class _Keep(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The forward."""

    def __init__(self, selection: Selection, keep: Keep, kept: _Kept) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._choose, self._keep, self._kept = selection.chooser(), keep, kept

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator; keep its output where the selection says so."""
        out = func(*args, **(kwargs or {}))
        entry = self._choose(func)
        if entry is not None:
            self._kept[func].append(tree_map_only(Tensor, lambda t: self._keep(t, entry), out))
        return out


class _HandOut(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The replay."""

    def __init__(self, selection: Selection, kept: _Kept) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._selection, self._kept = selection, kept

    def __enter__(self) -> Any:
        """Begin at the region's first operator, also where an earlier replay stopped before its last."""
        self._choose, self._calls = self._selection.chooser(), Counter[Any]()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Give back what was kept of this call, or run it.

        Raises RuntimeError if it was given back already, or was never kept.
        """
        if self._choose(func) is None:
            return func(*args, **(kwargs or {}))
        kept, call = self._kept[func], self._calls[func]
        self._calls[func] += 1
        if call >= len(kept):
            raise RuntimeError(f"call {call} of {func} in the replay of a region has none in its forward")
        if kept[call] is _HANDED_OUT:
            raise RuntimeError("a region whose kept outputs are offloaded has one backward only")
        out, kept[call] = tree_map(restore, kept[call]), _HANDED_OUT
        return out

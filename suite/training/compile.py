"""``compile=block|model``: torch.compile round what a policy has left, never inside it.

``compile(wrap(block))`` keeps every policy; ``wrap(compile(block))`` hides the operators from selective
ones. So a model is compiled once, as the last thing that is done to it, and as methods of the instances:
parameter names and the state dict stay. One graph or an error (``fullgraph``): a graph break inside a
checkpointed region drops the region without a word.

What differs from eager mode: nothing is replayed that backward does not need, early stop or not, and what
comes out of a region may be rebuilt with it. Where backward reads that (the output of ``discard``'s
products, of ``modules=attn``), its last product runs again too.
"""

import importlib
import importlib.util
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch._dynamo
from torch import fx

from suite.config.schema import CellConfig
from suite.errors import Unsupported
from suite.models.decoder import Decoder
from suite.policies import Applied, Entry
from suite.policies.traced import rules_in

_PARTITIONER = "torch._functorch.config"


class Compilation:
    """The backend of one model's graphs.

    Attributes:
        graphs_count: compiled so far: when it grows, something was compiled anew.
    """

    def __init__(self, backend: str, applied: Applied) -> None:
        self._inner = torch._dynamo.lookup_backend(backend)
        self._applied = applied
        self.graphs_count = 0
        with patched(_PARTITIONER, applied.partitioner):
            pass  # a missing knob is said here, and not out of the compiler

    def __call__(self, graph: fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        """Compile ``graph`` as the backend would, under the policy's settings.

        Whenever the graph runs, the rules of the policy that it holds count their hits.
        """
        self.graphs_count += 1
        found = rules_in(graph.graph)
        entries = [(e, found[e.name]) for e in self._applied.entries if found[e.name]]
        with patched(_PARTITIONER, self._applied.partitioner):
            run: Callable[..., Any] = self._inner(graph, inputs)
        return _counting(run, entries) if entries else run


def _counting(run: Callable[..., Any], entries: Sequence[tuple[Entry, int]]) -> Callable[..., Any]:
    def counting(*args: Any) -> Any:
        for entry, times in entries:
            entry.hits += times
        return run(*args)

    return counting


def compile_model(model: Decoder, config: CellConfig, applied: Applied) -> Compilation:
    """Compile what ``config.compile`` says, block or model, in place; nothing is traced before it runs.

    Args:
        model: with its policy.
        config: of the cell; its ``compile`` is not ``none``.
        applied: what the policy did to the model.

    Raises Unsupported if this torch lacks a setting that the policy needs.
    """
    compilation = Compilation(config.compile_backend, applied)
    _allow_graphs(len(model.blocks))
    _compile_in_this_process()

    def compiled(method: Callable[..., Any]) -> Any:
        return torch.compile(method, backend=compilation, fullgraph=True, dynamic=False)

    if config.compile == "block":
        for block in model.blocks:
            block.forward = compiled(block.forward)
    elif "loss" in vars(model):
        # A policy computes logits and loss in parts, past ``forward``: the trunk is left to compile.
        model.hidden = compiled(model.hidden)  # type: ignore[method-assign]
    else:
        model.forward = compiled(model.forward)  # type: ignore[method-assign]
    return compilation


def patched(module: str, settings: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """A context in which knobs of a configuration module of torch's have other values.

    Raises Unsupported if this torch has no such knob: nothing then runs as if it had.
    """
    if not settings:
        return nullcontext()
    config: Any = importlib.import_module(module)
    missing = [name for name in settings if not hasattr(config, name)]
    if missing:
        raise Unsupported(
            f"torch {torch.__version__} has no {module}.{missing[0]}; use another version, or compile=none"
        )
    context: AbstractContextManager[Any] = config.patch(dict(settings))
    return context


def _compile_in_this_process() -> None:
    """No pool of compilers: the variable that says so is read once, maybe before this process began."""
    config: Any = importlib.import_module("torch._inductor.config")
    if hasattr(config, "compile_threads"):
        config.compile_threads = 1
    # Tracing draws a progress bar where tqdm is there, whose lock is by default one between processes: a
    # semaphore that outlives a child which does not tear down.
    if importlib.util.find_spec("tqdm") is not None:
        importlib.import_module("tqdm").tqdm.set_lock(threading.RLock())


def _allow_graphs(depth: int) -> None:
    """Let blocks under different rules each have a graph: they share their code, and 8 is torch's limit.

    Without the knob the limit stays; going over it is an error that says so, because of ``fullgraph``.
    """
    config: Any = torch._dynamo.config
    if hasattr(config, "recompile_limit"):
        config.recompile_limit = max(config.recompile_limit, 2 * depth)

"""How a policy's rules are recognised in a compiled graph. Imports torch: used by ``apply`` and later.

Traced code is Python that runs once: a rule cannot count itself there. Worse, a number that every call
changes would be a constant of the trace, and each step compiled anew. So the trace is annotated with the
rule's name instead, and whoever compiles the graph reads the names off its nodes.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.fx.traceback
from torch import fx

from suite.policies.entries import Entry

_KEY = "recompute_rule"
# Under every name the operator that checkpointing is traced to has had.
_REGIONS = frozenset({"tag_activation_checkpoint", "wrap_activation_checkpoint"})


@contextmanager
def hit(entry: Entry) -> Iterator[None]:
    """What runs inside is one hit of ``entry``, now or, in traced code, whenever the graph runs."""
    if torch.compiler.is_compiling():
        with torch.fx.traceback.annotate({_KEY: entry.name}):
            yield
    else:
        entry.hits += 1
        yield


def rules_in(graph: fx.Graph) -> Counter[str]:
    """Name of each rule in a graph, as Dynamo hands it to a backend, and how often it is there.

    A region counts as often as it is in the graph, and a rule about a whole graph once.
    """
    regions: Counter[str] = Counter()
    whole: set[str] = set()
    for node in graph.nodes:
        name = (node.meta.get("custom") or {}).get(_KEY)
        if name is None:
            continue
        if _is_region(node):
            regions[name] += 1
        else:
            whole.add(name)
    return regions + Counter(whole - regions.keys())


def _is_region(node: fx.Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") in _REGIONS

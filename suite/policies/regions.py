"""Checkpointed regions, the one mechanism under several families. Imports torch: used by ``apply`` only.

The instances' ``forward`` is replaced rather than modules wrapped: parameter names, the state dict and
``isinstance`` stay, and hooks that users put on a module run once per step, not again in the replay.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from suite.policies.entries import Entry
from suite.policies.traced import hit


def checkpoint_module(module: nn.Module, entry: Entry, **options: Any) -> None:
    """Recompute ``module``'s forward in backward; ``options`` are those of torch's ``checkpoint``."""
    # A partial, and not a call with **options: Dynamo finds a context_fn only among a partial's keywords.
    recompute = partial(checkpoint, module.forward, **options)

    def forward(*args: Any, **kwargs: Any) -> Any:
        with hit(entry):
            return recompute(*args, **kwargs)

    module.forward = forward


def checkpoint_span(modules: Sequence[nn.Module], entry: Entry, **options: Any) -> None:
    """One region over ``modules``, each fed with the output of the one before.

    Further arguments are the same for all. The first module runs them all, the others hand on their input.
    """
    inners = [module.forward for module in modules]

    def run(x: Any, *args: Any) -> Any:
        for inner in inners:
            x = inner(x, *args)
        return x

    def forward(x: Any, *args: Any) -> Any:
        with hit(entry):
            return checkpoint(run, x, *args, **options)

    modules[0].forward = forward
    for module in modules[1:]:
        module.forward = _hand_on


def _hand_on(x: Any, *_: Any) -> Any:
    return x


def checkpoint_deferred(producer: nn.Module, consumer: nn.Module, entry: Entry, **options: Any) -> None:
    """One region over ``producer`` and the ``consumer`` that is fed with its output.

    The producer hands its arguments on and the consumer runs both. What it needs of the producer's
    output for its own backward is rebuilt, and with early stop the replay ends there: the consumer itself
    is not run again.
    """
    produce, consume = producer.forward, consumer.forward

    def run(count: int, *args: Any) -> Any:
        return consume(produce(*args[:count]), *args[count:])

    def hand_on(*args: Any) -> Any:
        return args if len(args) > 1 else args[0]

    def forward(deferred: Any, *args: Any) -> Any:
        given = deferred if isinstance(deferred, tuple) else (deferred,)
        with hit(entry):
            return checkpoint(run, len(given), *given, *args, **options)

    producer.forward = hand_on
    consumer.forward = forward

"""Optimizers in each of torch's implementations."""

from collections.abc import Iterable

from torch import nn, optim

from suite.config.schema import OptimizerConfig


def build_optimizer(parameters: Iterable[nn.Parameter], config: OptimizerConfig) -> optim.Optimizer:
    """The optimizer over ``parameters``, with exactly the implementation asked for.

    torch would silently pick another one where the asked one is left open, so both flags are given.
    """
    foreach, fused = config.impl == "foreach", config.impl == "fused"
    if config.kind == "adamw":
        return optim.AdamW(
            parameters, lr=config.lr, weight_decay=config.weight_decay, foreach=foreach, fused=fused
        )
    return optim.SGD(
        parameters,
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        foreach=foreach,
        fused=fused,
    )

"""A cell's memory and work before it runs, from formulas: what ``plan=true`` shows.

``saved_bytes`` is exact for fp32 and bf16-true on the CPU (the tests hold it against the tracker);
``peak_bytes`` adds the gradients and the head's float copies and is an estimate.
"""

from dataclasses import dataclass

from suite.config.schema import CellConfig
from suite.models.shape import FAMILIES, head_dim, parameter_count
from suite.predict.flops import model_flops
from suite.predict.policies import keeps_logits, trunk_of
from suite.predict.tensors import (
    Sizes,
    element_bytes,
    kernels_of,
    norm_tensors,
    total,
)


@dataclass(frozen=True)
class Estimate:
    """What is said of a cell before it runs. Bytes and FLOPs of one step.

    All bytes but ``host_bytes`` are the device's.
    """

    peak_bytes: int
    saved_bytes: int
    static_bytes: int
    step_flops: int
    model_flops: int
    host_bytes: int = 0


def estimate(config: CellConfig) -> Estimate:
    """The formulas' answer for one cell."""
    trunk = trunk_of(config)
    saved = trunk.saved_bytes + saved_outside_blocks(config)
    parameters = parameter_count(config.model)
    master = 2 if config.precision == "bf16-true" else 4
    states = {"adamw": 2, "sgd": 1 if config.optimizer.momentum else 0}[config.optimizer.kind]
    static = parameters * master * (1 + states)
    gradients = parameters * master
    # The loss holds the logits' log-softmax and its gradient in float32 beside the logits.
    logits = config.batch_size * config.seq_len * config.model.vocab_size
    loss = static + saved + 2 * 4 * logits
    backward = static + saved + trunk.transient_bytes + gradients // max(config.model.n_layers, 1)
    workspace = gradients if config.optimizer.impl == "foreach" else 0
    optimizer = static + gradients + workspace
    needed = model_flops(config)
    return Estimate(
        peak_bytes=max(loss, backward, optimizer),
        saved_bytes=saved,
        static_bytes=static,
        step_flops=needed + trunk.recomputed_flops,
        model_flops=needed,
        host_bytes=trunk.host_bytes,
    )


def saved_outside_blocks(config: CellConfig) -> int:
    """What embedding, final norm, head and the tables that blocks share keep.

    A block's input counts as the block's own, so the embedding's output is not here.
    """
    model, e, sizes = config.model, element_bytes(config), Sizes.of(config)
    learned = FAMILIES[model.family].learned_positions
    packed = config.batch_size if config.data.kind == "packed" else 1
    tail = total(norm_tensors("norm", config, sizes))
    if keeps_logits(config.policy):
        tail += e * config.batch_size * config.seq_len * model.vocab_size
    if learned:
        tail += 8 * packed * config.seq_len  # the positions, as the table's indices
        if model.dropout:
            tail += sizes.u // e if kernels_of(config).fused_dropout else sizes.u
    else:
        tail += 2 * 4 * packed * config.seq_len * (head_dim(model) // 2)
    if config.attention == "eager":
        tail += packed * config.seq_len**2  # the boolean mask, one for all blocks
    return tail

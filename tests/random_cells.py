"""Cells drawn by a seed over everything that can be small: for checks that no list of cases foresees."""

import random
from collections.abc import Iterator
from typing import Any

from make_cell import POLICIES, make_cell

from suite.cell import Cell
from suite.config.load import check_policy
from suite.config.schema import DataConfig, OptimizerConfig
from suite.errors import Unsupported

_MODELS = ("llama_nano", "gpt_nano", "moe_nano")
_OPTIMIZERS = [
    *(OptimizerConfig(impl=impl) for impl in ("foreach", "fused", "forloop")),
    OptimizerConfig(kind="sgd"),
    OptimizerConfig(kind="sgd", momentum=0.0),
]


def random_cells(seed: int, count: int) -> Iterator[Cell]:
    """``count`` distinct cells of small models on the CPU, none of which its policy's check refuses.

    Policies come in turn, so that each has its share; all else is drawn: family, depth, heads, width,
    vocabulary, ties, length, batch, kernel, precision, optimizer and data. The same seed draws the same cells.
    """
    draw = random.Random(seed)
    policies = draw.sample(POLICIES, len(POLICIES))
    seen: set[str] = set()
    turn = 0
    while len(seen) < count:
        cell = _drawn(draw, policies[turn % len(policies)])
        turn += 1
        if cell.id in seen or _refused(cell):
            continue
        seen.add(cell.id)
        yield cell


def _drawn(draw: random.Random, policy: dict[str, Any]) -> Cell:
    model = draw.choice(_MODELS)
    heads, head_dim = draw.choice((2, 3, 4, 6)), draw.choice((8, 12, 16, 24))
    shared = [n for n in (1, 2, 3, 6) if heads % n == 0]
    changes: dict[str, Any] = {
        "model_n_layers": draw.randint(3, 9),
        "model_n_heads": heads,
        # The GPT family has a key and value head for each query head.
        "model_n_kv_heads": heads if model == "gpt_nano" else draw.choice(shared),
        "model_d_model": heads * head_dim,
        "model_d_ff": draw.choice((40, 64, 136, 200)),
        "model_vocab_size": draw.choice((97, 256, 512)),
        "model_tied_head": draw.random() < 0.5,
        "seq_len": draw.randint(5, 96),
        "batch_size": draw.randint(1, 4),
        "precision": draw.choice(("fp32", "bf16-mixed", "bf16-true")),
        "attention": draw.choice(("eager", "sdpa", "flash")),
        "optimizer": draw.choice(_OPTIMIZERS),
        "data": DataConfig(kind=draw.choice(("synthetic", "synthetic", "packed"))),
    }
    if model == "gpt_nano":
        changes["model_dropout"] = draw.choice((0.0, 0.1))
    if model == "moe_nano":
        changes |= {"model_n_experts": 4, "model_top_k": draw.choice((1, 2))}
        changes["model_n_shared_experts"] = draw.choice((0, 1))
    return make_cell(model, policy, **changes)


def _refused(cell: Cell) -> bool:
    """As a composed configuration is, before anything starts."""
    try:
        check_policy(cell)
    except Unsupported:
        return True
    return False

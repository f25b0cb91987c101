"""Small models and the cells around them, for the tests of this folder."""

import dataclasses
from typing import Any

import torch
from make_cell import base_config

from suite.config.schema import CellConfig, ModelConfig
from suite.models import build_model
from suite.models.decoder import Decoder

GPT = ModelConfig(
    name="gpt_test",
    family="gpt",
    vocab_size=61,
    n_layers=2,
    d_model=24,
    n_heads=4,
    n_kv_heads=4,
    d_ff=40,
    max_seq_len=32,
)
LLAMA = dataclasses.replace(GPT, name="llama_test", family="llama", n_heads=6, n_kv_heads=2)
MOE = dataclasses.replace(
    LLAMA, name="moe_test", family="moe", d_ff=20, n_experts=4, top_k=2, aux_loss=0.01, n_shared_experts=1
)
FAMILIES = {"gpt": GPT, "llama": LLAMA, "moe": MOE}


def make_cell(model: ModelConfig, **changes: Any) -> CellConfig:
    """A short workload on the CPU; ``changes`` are fields of CellConfig, or ``model_<field>``."""
    return base_config(model, **{"seq_len": 16, **changes})


def make_model(model: ModelConfig, *, seed: int = 0, **changes: Any) -> Decoder:
    """The built model of :func:`make_cell`, weights from ``seed``, biases and norms made visible."""
    torch.manual_seed(seed)
    built = build_model(make_cell(model, **changes))
    with torch.no_grad():
        for parameter in built.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return built


def make_tokens(batch: int = 2, length: int = 16, seed: int = 1) -> torch.Tensor:
    """Random tokens of the small vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, GPT.vocab_size, (batch, length), generator=generator)

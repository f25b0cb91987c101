"""Small models and the cells around them, for the tests of this folder."""

import dataclasses
from typing import Any

import torch

from suite.config.schema import CellConfig, DataConfig, ModelConfig, OptimizerConfig, PolicyConfig
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
LLAMA = ModelConfig(
    name="llama_test",
    family="llama",
    vocab_size=61,
    n_layers=2,
    d_model=24,
    n_heads=6,
    n_kv_heads=2,
    d_ff=40,
    max_seq_len=32,
)
FAMILIES = {"gpt": GPT, "llama": LLAMA}


def make_cell(model: ModelConfig, **changes: Any) -> CellConfig:
    """A cell on the CPU; ``changes`` are fields of CellConfig, or of the model as ``model_<field>``."""
    inner = {k.removeprefix("model_"): v for k, v in changes.items() if k.startswith("model_")}
    outer = {k: v for k, v in changes.items() if not k.startswith("model_")}
    base = CellConfig(
        model=dataclasses.replace(model, **inner),
        policy=PolicyConfig("none"),
        seq_len=16,
        batch_size=2,
        precision="fp32",
        attention="sdpa",
        compile="none",
        optimizer=OptimizerConfig(),
        data=DataConfig(),
        device="cpu",
        threads=1,
        seed=0,
    )
    return dataclasses.replace(base, **outer)


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

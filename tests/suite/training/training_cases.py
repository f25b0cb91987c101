"""One small workload, and ways to vary it, for the tests of this folder."""

import dataclasses
from typing import Any

import torch
from make_cell import base_config

from suite.config.schema import CellConfig, DataConfig, ModelConfig
from suite.models import build_model
from suite.models.decoder import Decoder
from suite.training.precision import PRECISION

MODEL = ModelConfig(
    name="llama_test",
    family="llama",
    vocab_size=300,
    n_layers=2,
    d_model=16,
    n_heads=4,
    n_kv_heads=2,
    d_ff=24,
    max_seq_len=64,
)
WORKLOAD = base_config(MODEL, seq_len=12)


def workload(**changes: Any) -> CellConfig:
    """The workload with some fields changed."""
    return dataclasses.replace(WORKLOAD, **changes)


def packed(**options: Any) -> DataConfig:
    """Packed documents with some options set."""
    return DataConfig(kind="packed", **options)


def seeded_model(config: CellConfig, seed: int = 0) -> Decoder:
    """The workload's model in its precision's dtype, with the weights of ``seed``."""
    torch.manual_seed(seed)
    torch.set_default_dtype(PRECISION[config.precision].model_dtype)
    try:
        return build_model(config)
    finally:
        torch.set_default_dtype(torch.float32)

"""What is refused before a model is built, and that refusing needs no torch."""

import subprocess
import sys

import pytest
from model_cases import GPT, LLAMA, MOE, make_cell

from suite.config.schema import DataConfig
from suite.errors import Unsupported, UsageError
from suite.models import check_kernel, check_model

REFUSED = {
    "family": (GPT, {"model_family": "bert"}, "model.family=bert: expected one of gpt, llama, moe"),
    "zero": (GPT, {"model_n_layers": 0}, "model.n_layers=0: expected a whole number >= 1"),
    "negative": (GPT, {"model_d_model": -8}, "model.d_model=-8: expected a whole number >= 1"),
    "vocabulary": (GPT, {"model_vocab_size": 0}, "model.vocab_size=0: expected a whole number >= 1"),
    "head_dim": (
        GPT,
        {"model_head_dim": -1},
        "model.head_dim=-1: expected 0 (d_model / n_heads) or a size >= 1",
    ),
    "heads": (
        GPT,
        {"model_n_heads": 5, "model_n_kv_heads": 5},
        "model.n_heads=5: must divide model.d_model=24, or set model.head_dim",
    ),
    "groups": (LLAMA, {"model_n_kv_heads": 4}, "model.n_kv_heads=4: must divide model.n_heads=6"),
    "odd head_dim": (
        LLAMA,
        {"model_head_dim": 5},
        "model.head_dim=5: RoPE turns pairs: expected an even number",
    ),
    "odd heads": (
        LLAMA,
        {"model_n_heads": 8, "model_n_kv_heads": 8},
        "model.n_heads=8: gives heads of 3 from model.d_model=24; RoPE needs an even width",
    ),
    "length": (
        GPT,
        {"seq_len": 33},
        "seq_len=33: gpt_test has learned positions up to model.max_seq_len=32",
    ),
    "no length": (LLAMA, {"seq_len": 0}, "seq_len=0: expected a whole number >= 1"),
    "no batch": (LLAMA, {"batch_size": 0}, "batch_size=0: expected a whole number >= 1"),
    "dropout 1": (GPT, {"model_dropout": 1.0}, "model.dropout=1.0: expected a probability in [0, 1)"),
    "dropout < 0": (GPT, {"model_dropout": -0.1}, "model.dropout=-0.1: expected a probability in [0, 1)"),
    "dropout nan": (
        GPT,
        {"model_dropout": float("nan")},
        "model.dropout=nan: expected a probability in [0, 1)",
    ),
    "llama dropout": (LLAMA, {"model_dropout": 0.1}, "model.dropout=0.1: the llama family has none: use 0"),
    "no experts": (MOE, {"model_n_experts": 0}, "model.n_experts=0: expected a whole number >= 1"),
    "experts": (GPT, {"model_n_experts": 4}, "model.n_experts=4: the gpt family has no experts: use 0"),
    "choices": (LLAMA, {"model_top_k": 2}, "model.top_k=2: the llama family has no experts: use 0"),
    "balance": (
        LLAMA,
        {"model_aux_loss": 0.1},
        "model.aux_loss=0.1: the llama family has no experts: use 0",
    ),
    "shared": (
        LLAMA,
        {"model_n_shared_experts": 1},
        "model.n_shared_experts=1: the llama family has no experts: use 0",
    ),
    "no choice": (
        MOE,
        {"model_top_k": 0},
        "model.top_k=0: expected a whole number from 1 to model.n_experts=4",
    ),
    "too many": (
        MOE,
        {"model_top_k": 5},
        "model.top_k=5: expected a whole number from 1 to model.n_experts=4",
    ),
    "shared < 0": (
        MOE,
        {"model_n_shared_experts": -1},
        "model.n_shared_experts=-1: expected a whole number >= 0",
    ),
    "balance < 0": (
        MOE,
        {"model_aux_loss": -0.1},
        "model.aux_loss=-0.1: expected a finite coefficient >= 0",
    ),
    "balance nan": (
        MOE,
        {"model_aux_loss": float("nan")},
        "model.aux_loss=nan: expected a finite coefficient >= 0",
    ),
    "epsilon": (GPT, {"model_norm_eps": 0.0}, "model.norm_eps=0.0: expected a number > 0"),
    "theta": (LLAMA, {"model_rope_theta": -1.0}, "model.rope_theta=-1.0: expected a number > 0"),
    "kernel": (GPT, {"attention": "math"}, "attention=math: expected one of eager, sdpa, flash"),
    "bytes": (
        GPT,
        {"data": DataConfig(kind="bytes")},
        "model.vocab_size=61: data=bytes needs at least 256 tokens",
    ),
}
CUDA = {"attention": "flash", "device": "cuda"}
UNSUPPORTED = {
    "dropout": (
        GPT,
        {"attention": "flash", "model_dropout": 0.1},
        "attention=flash: no dropout on the CPU; use sdpa or eager, or model.dropout=0",
    ),
    "packed": (
        LLAMA,
        {**CUDA, "data": DataConfig(kind="packed"), "precision": "bf16-true"},
        "attention=flash: takes no mask, which data=packed needs; use sdpa or eager",
    ),
    "fp32": (
        LLAMA,
        CUDA,
        "attention=flash: computes in 16 bits; use sdpa or eager, or precision=bf16-mixed or bf16-true",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_one_line(case):
    model, changes, message = REFUSED[case]
    with pytest.raises(UsageError) as raised:
        check_model(make_cell(model, **changes))
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        (LLAMA, {"seq_len": 33}),
        (GPT, {"seq_len": 32}),
        (GPT, {"model_head_dim": 5}),
        (LLAMA, {"attention": "flash", "data": DataConfig(kind="packed")}),
        (LLAMA, {**CUDA, "precision": "bf16-mixed"}),
        (GPT, {**CUDA, "precision": "bf16-true", "model_dropout": 0.1}),
        (GPT, {"attention": "sdpa", "model_dropout": 0.1}),
        (GPT, {"model_vocab_size": 256, "data": DataConfig(kind="bytes", path="x")}),
    ],
)
def test_accepted(model, changes):
    cell = make_cell(model, **changes)
    check_model(cell)
    check_kernel(cell)


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_a_kernel_that_cannot_run_here_is_unsupported(case):
    model, changes, message = UNSUPPORTED[case]
    cell = make_cell(model, **changes)
    check_model(cell)
    with pytest.raises(Unsupported) as raised:
        check_kernel(cell)
    assert str(raised.value) == message


@pytest.mark.parametrize("module", ["suite.models", "suite.models.shape", "suite.training"])
def test_the_parents_modules_import_no_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""The formulas against the tracker and the counter: equal to the byte and to the FLOP."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_cell import POLICIES, make_cell, make_session, policy_id

from suite.config.load import check_policy
from suite.config.schema import DataConfig
from suite.errors import Unsupported
from suite.measure import measure
from suite.predict.estimate import estimate
from suite.predict.policies import trunk_of

WORKLOADS: list[tuple[str, dict[str, Any]]] = [
    ("llama_nano", {"attention": "sdpa"}),
    ("llama_nano", {"attention": "eager", "batch_size": 1}),
    ("llama_nano", {"attention": "eager", "precision": "bf16-true"}),
    ("llama_nano", {"attention": "sdpa", "precision": "bf16-true", "batch_size": 3, "seq_len": 33}),
    ("gpt_nano", {"attention": "sdpa", "model_dropout": 0.0}),
    ("gpt_nano", {"attention": "sdpa", "model_dropout": 0.1}),
    ("gpt_nano", {"attention": "eager", "model_dropout": 0.1, "batch_size": 1}),
    ("gpt_nano", {"attention": "sdpa", "precision": "bf16-true", "model_dropout": 0.1}),
    ("gpt_nano", {"attention": "eager", "precision": "bf16-true", "model_dropout": 0.0}),
    ("moe_nano", {"attention": "sdpa"}),
    ("moe_nano", {"attention": "eager", "batch_size": 1}),
    ("moe_nano", {"attention": "eager", "precision": "bf16-true"}),
    ("moe_micro", {"attention": "sdpa", "precision": "bf16-true", "batch_size": 3, "seq_len": 33}),
]


@pytest.mark.parametrize("policy", POLICIES, ids=policy_id)
@pytest.mark.parametrize(("model", "workload"), WORKLOADS, ids=str)
def test_saved_bytes_and_executed_flops(
    policy: dict[str, Any], model: str, workload: dict[str, Any]
) -> None:
    check_formulas(policy, model, workload)


def check_formulas(policy: dict[str, Any], model: str, workload: dict[str, Any]) -> None:
    cell = make_cell(model, policy, **workload)
    try:
        check_policy(cell)
    except Unsupported:
        return
    predicted = estimate(cell.config)
    memory = measure(cell, "memory", 0, make_session()).figures
    flops = measure(cell, "flops", 0, make_session()).figures
    assert flops["model_flops"] == predicted.model_flops
    assert memory["static_bytes"] == pytest.approx(predicted.static_bytes, rel=1e-3)
    if trunk_of(cell.config).exact:
        assert memory["saved_bytes"] == predicted.saved_bytes
        assert memory.get("host_moved_bytes", 0) == predicted.host_bytes
        assert flops["executed_flops"] == predicted.step_flops
        assert flops["recomputed_flops"] == predicted.step_flops - predicted.model_flops


@pytest.mark.parametrize("targets", ["moe", "experts", "shared_experts", "router", "attn+experts+router"])
@pytest.mark.parametrize("precision", ["fp32", "bf16-true"])
def test_the_parts_of_a_mixture(targets: str, precision: str) -> None:
    check_formulas({"family": "modules", "targets": targets}, "moe_micro", {"precision": precision})


@pytest.mark.parametrize("precision", ["fp32", "bf16-true"])
@pytest.mark.parametrize("action", ["save", "offload"])
def test_a_router_s_choice_is_kept_whole(action: str, precision: str) -> None:
    for policy in (
        {"family": "named", "router": action},
        {"family": "named", "preset": "minimal", "router": action},
    ):
        check_formulas(policy, "moe_micro", {"precision": precision})


@settings(max_examples=12, deadline=None)
@given(
    policy=st.sampled_from([p for p in POLICIES if p["family"] in ("none", "full", "modules", "discard")]),
    experts=st.integers(1, 5),
    top_k=st.integers(1, 5),
    shared=st.integers(0, 2),
    aux_loss=st.sampled_from([0.0, 0.01]),
    seed=st.integers(0, 3),
)
def test_a_mixture_keeps_the_same_however_it_routes(
    policy: dict[str, Any], experts: int, top_k: int, shared: int, aux_loss: float, seed: int
) -> None:
    shape = {
        "model_n_layers": 2,
        "model_n_experts": experts,
        "model_top_k": min(top_k, experts),
        "model_n_shared_experts": shared,
        "model_aux_loss": aux_loss,
    }
    check_formulas(policy, "moe_nano", {**shape, "seq_len": 7, "seed": seed})


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("model", ["llama_nano", "gpt_nano", "moe_nano"])
def test_packed_documents(model: str, attention: str) -> None:
    data = DataConfig(kind="packed", mean_length=8)
    cell = make_cell(model, data=data, model_dropout=0.0, attention=attention)
    memory = measure(cell, "memory", 0, make_session()).figures
    assert memory["saved_bytes"] == estimate(cell.config).saved_bytes


EXTRA = [
    ("gpt_nano", {}, {}, 0.222),
    ("llama_nano", {"model_n_kv_heads": 4, "model_d_ff": 256}, {}, 0.260),
    ("gpt_nano", {}, {"early_stop": False}, 0.333),
    ("llama_nano", {}, {"early_stop": False}, 0.333),
]


@pytest.mark.parametrize(("model", "shape", "options", "expected"), EXTRA, ids=str)
def test_what_full_recomputation_costs_depends_on_the_block(
    model: str, shape: dict[str, Any], options: dict[str, Any], expected: float
) -> None:
    """+22.2 % with GELU and 4h, +26.0 % with SwiGLU and 8h/3, +33.3 % without early stop."""
    # One token a sequence and two words leave the blocks' own matrix products.
    workload = {"seq_len": 1, "batch_size": 64, "model_vocab_size": 2, "model_dropout": 0.0, **shape}
    cell = make_cell(model, {"family": "full", **options}, **workload)
    found = measure(cell, "flops", 0, make_session()).figures
    extra = found["executed_flops"] / found["model_flops"] - 1
    assert extra == pytest.approx(expected, abs=0.003)

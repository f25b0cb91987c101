"""Whatever a policy keeps, the step must be the same step: bitwise on the CPU."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_cell import POLICIES, make_cell, make_session, policy_id

from suite.cell import Cell
from suite.config.load import check_policy
from suite.errors import Unsupported
from suite.measure import measure
from suite.policies import make_policy

WORKLOADS = [
    ("llama_nano", {"attention": "sdpa"}),
    ("llama_nano", {"attention": "eager", "precision": "bf16-true"}),
    ("gpt_nano", {"attention": "sdpa", "model_dropout": 0.1}),
    ("gpt_nano", {"attention": "eager", "precision": "bf16-mixed", "model_dropout": 0.1}),
    ("moe_nano", {"attention": "sdpa"}),
    ("moe_micro", {"attention": "eager", "precision": "bf16-mixed"}),
]


# Without a fused kernel there is no fused operator to keep, and attention keeps copies of q, k and v.
REFUSED_THERE = [
    {"family": "ops", "save": "attn"},
    {"family": "offload", "what": "selective", "ops": "attn", "min_bytes": 0},
    {"family": "rebuild", "targets": ["norm", "qkv", "act"]},
]


def refused_for_a_mixture(policy: dict[str, Any]) -> bool:
    """Its auxiliary loss is over all tokens, and its router must see in a replay what it saw before."""
    tiles = policy["family"] == "tiled" and policy.get("mlp", 4) > 1
    return tiles or (policy["family"] == "compressed" and policy["what"] == "inputs")


@pytest.mark.parametrize("policy", POLICIES, ids=policy_id)
@pytest.mark.parametrize(("model", "workload"), WORKLOADS, ids=str)
def test_gradients_buffers_and_random_state_equal_those_of_none(
    policy: dict[str, Any], model: str, workload: dict[str, Any]
) -> None:
    cell = make_cell(model, policy, **workload)
    try:
        check_policy(cell)
    except Unsupported:
        assert policy in REFUSED_THERE or (model.startswith("moe") and refused_for_a_mixture(policy))
        return
    check_parity(cell)


@pytest.mark.parametrize("targets", ["moe", "experts", "shared_experts", "router", "norms+experts+router"])
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_parts_of_a_mixture(targets: str, precision: str) -> None:
    check_parity(make_cell("moe_micro", {"family": "modules", "targets": targets}, precision=precision))


def check_parity(cell: Cell) -> None:
    found = measure(cell, "parity", 0, make_session())
    assert found.status == "ok", found.error
    assert found.figures["buffers_differing_count"] == 0
    assert found.figures["parameters_compared_count"] > 10
    assert found.figures["rng_equal_count"] == 1
    allowed = make_policy(cell.config.policy).tolerance(cell.config)
    if allowed is not None:
        assert found.figures["max_grad_rel_diff"] <= found.detail["tolerance"] == allowed.relative
        assert found.detail["tolerance_reason"] == allowed.reason
        return
    assert found.figures["parameters_differing_count"] == 0
    assert found.figures["max_grad_abs_diff"] == found.figures["loss_abs_diff"] == 0.0
    assert found.detail["bitwise"] is True


SEGMENTS = st.builds(lambda n: {"family": "segments", "n": n}, st.integers(1, 4))
SELECTORS = ["first-1", "last-2", "middle-3", "range-1-3", "every-2", "0,2-3"]
CHOSEN = st.builds(lambda text: {"family": "blocks", "select": text}, st.sampled_from(SELECTORS))


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from(["llama_nano", "gpt_nano", "moe_nano"]),
    policy=st.sampled_from(POLICIES) | SEGMENTS | CHOSEN,
    depth=st.integers(4, 6),
    heads=st.sampled_from([(4, 1), (4, 2), (4, 4), (6, 3)]),
    seq_len=st.integers(1, 19),
    batch_size=st.integers(1, 3),
    attention=st.sampled_from(["sdpa", "eager"]),
    dropout=st.booleans(),
    packed=st.booleans(),
)
def test_parity_holds_over_depths_heads_odd_lengths_and_dropout(
    model: str,
    policy: dict[str, Any],
    depth: int,
    heads: tuple[int, int],
    seq_len: int,
    batch_size: int,
    attention: str,
    dropout: bool,
    packed: bool,
) -> None:
    from suite.config.schema import DataConfig

    cell = make_cell(
        model,
        policy,
        model_n_layers=depth,
        model_n_heads=heads[0],
        model_n_kv_heads=heads[1],
        model_d_model=48,
        model_dropout=0.2 if dropout and model == "gpt_nano" else 0.0,
        seq_len=seq_len,
        batch_size=batch_size,
        attention=attention,
        data=DataConfig(kind="packed", mean_length=5) if packed and seq_len > 4 else DataConfig(),
    )
    try:
        check_policy(cell)
    except Unsupported:
        few_tokens = policy["family"] in ("tiled", "assignment") and seq_len < 5
        refused = model == "moe_nano" and refused_for_a_mixture(policy)
        assert few_tokens or refused or policy in REFUSED_THERE
        return
    found = measure(cell, "parity", 0, make_session())
    assert found.status == "ok", found.error


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
@pytest.mark.parametrize("action", ["save", "offload"])
def test_a_router_that_is_not_run_again(action: str, precision: str) -> None:
    check_parity(make_cell("moe_nano", {"family": "named", "router": action}, precision=precision))


def test_dropout_without_its_random_state_is_wrong_and_named() -> None:
    policy = {"family": "full", "preserve_rng_state": False}
    found = measure(make_cell("gpt_nano", policy, model_dropout=0.5), "parity", 0, make_session())
    assert found.status == "wrong"
    assert found.error is not None
    assert "gradients differ" in found.error["message"]
    assert found.figures["max_grad_rel_diff"] > 0.1
    assert found.detail["differing"][0]["name"].startswith(("blocks.", "embed.", "head", "norm"))


FORWARDS = [
    ({"family": "none"}, [1, 1, 1, 1]),
    ({"family": "full"}, [2, 2, 2, 2]),
    ({"family": "segments", "n": 3}, [2, 2, 2, 2]),
    ({"family": "blocks", "select": "first-1,3"}, [2, 1, 1, 2]),
    ({"family": "modules", "targets": ["attn", "mlp"]}, [1, 1, 1, 1]),
]


@pytest.mark.parametrize(("policy", "expected"), FORWARDS, ids=str)
def test_forwards_of_each_block_are_counted(policy: dict[str, Any], expected: list[int]) -> None:
    found = measure(make_cell(policy=policy), "parity", 0, make_session())
    assert found.detail["forwards_per_block"] == {"policy": expected, "reference": [1, 1, 1, 1]}

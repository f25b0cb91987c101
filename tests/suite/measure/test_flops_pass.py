"""The FLOPs pass: what is counted, and that fake and real agree."""

from typing import Any

import pytest
import torch
from make_cell import make_cell, make_session
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from suite.measure import measure
from suite.measure.setup import build_subject
from suite.measure.work import WorkCounter

SESSION = make_session()


@pytest.mark.parametrize("attention", ["eager", "sdpa", "flash"])
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "bf16-true"])
def test_model_flops_counted_on_fake_tensors_are_those_executed_without_a_policy(
    attention: str, precision: str
) -> None:
    cell = make_cell(attention=attention, precision=precision)
    found = measure(cell, "flops", 0, SESSION).figures
    assert found["executed_flops"] == found["model_flops"] > 0
    assert found["recomputed_flops"] == 0
    assert found["executed_forward_flops"] == found["model_forward_flops"]


def test_the_cpu_s_attention_operator_is_counted() -> None:
    q = torch.randn(2, 4, 8, 16, requires_grad=True)
    k = torch.randn(2, 2, 8, 16, requires_grad=True)
    with WorkCounter() as counter:
        y = scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
        forward = counter.total_flops
        y.sum().backward()
    product = 2 * 2 * 4 * 8 * 8 * 16
    assert forward == 2 * product
    assert counter.total_flops == 7 * product


def test_the_counter_agrees_with_torch_s_own_where_that_knows_every_operator() -> None:
    cell = make_cell("gpt_nano", {"family": "full"}, attention="eager")
    subject = build_subject(cell.config, instrumented=False)
    subject.apply_policy()
    tokens = torch.zeros(2, 8, dtype=torch.long)
    with FlopCounterMode(display=False) as theirs, WorkCounter() as ours:
        subject.model(tokens).sum().backward()
    assert ours.total_flops == theirs.get_total_flops() > 0


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_attention_grows_with_the_square_of_the_length(kernel: str) -> None:
    def attention_part(seq_len: int) -> float:
        found = measure(make_cell(attention=kernel, seq_len=seq_len), "flops", 0, SESSION)
        linear: Any = measure(make_cell(attention=kernel, seq_len=1), "flops", 0, SESSION)
        return found.figures["model_flops"] - seq_len * linear.figures["model_flops"]

    # a s^2 + b s with the b s taken away at s = 1 leaves a (s^2 - s).
    assert attention_part(32) / attention_part(16) == pytest.approx((32**2 - 32) / (16**2 - 16))

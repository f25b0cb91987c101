"""The family offload: the step of ``none``, with what it keeps in host memory."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from make_cell import make_cell, make_session

from suite.config.load import check_policy
from suite.config.schema import DataConfig
from suite.errors import MatchedNothing, Unsupported, UsageError
from suite.measure import measure
from suite.measure.flops import first_batch
from suite.measure.setup import build_subject
from suite.policies import parse_policy
from suite.policies.offload import WHAT

SESSION = make_session()

REFUSED = [
    ({"what": "everything"}, "policy.what=everything: expected one of block_inputs, saved"),
    ({"what": "selective", "ops": "bmm"}, "policy.ops=bmm: expected one of attn, mm"),
    ({"what": "saved", "ops": "mm"}, "policy.ops=mm: is for policy.what=selective only"),
    ({"min_bytes": "4 parsecs"}, "policy.min_bytes=4 parsecs: expected bytes"),
    ({"min_bytes": -1}, "policy.min_bytes=-1: expected a whole number"),
    ({"keep_last": True}, "policy.keep_last=True: expected a whole number"),
    ({"pinned": "yes"}, "policy.pinned=yes: expected true or false"),
    ({"host_cap": 1.5}, "policy.host_cap=1.5: expected a whole number"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=str)
def test_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_policy({"family": "offload", **options})


def test_bytes_have_one_normal_form() -> None:
    text = parse_policy({"family": "offload", "min_bytes": "1MiB", "host_cap": "2 GiB"})
    number = parse_policy({"family": "offload", "min_bytes": 2**20, "host_cap": 2**31})
    assert text == number
    assert text.options == {"min_bytes": 2**20, "host_cap": 2**31}
    assert parse_policy({"family": "offload", "min_bytes": "4KiB", "host_cap": None}).options == {}


def test_what_cannot_apply_is_said_before_it_runs() -> None:
    with pytest.raises(MatchedNothing, match=r"policy\.keep_last=4: leaves no block; .* blocks 0 to 3"):
        check_policy(make_cell(policy={"family": "offload", "keep_last": 4}))
    attn = {"family": "offload", "what": "selective", "ops": "attn"}
    with pytest.raises(Unsupported, match=r"policy\.ops=attn: attention=eager"):
        check_policy(make_cell(policy=attn, attention="eager"))


@pytest.mark.parametrize("pass_", ["memory", "flops", "parity", "time"])
@pytest.mark.parametrize("what", WHAT)
def test_nothing_large_enough_is_an_error_that_says_what_there_was(what: str, pass_: str) -> None:
    cell = make_cell(policy={"family": "offload", "what": what, "min_bytes": "1GiB"})
    with pytest.raises(MatchedNothing, match=r"policy\.what=.*nothing.*KiB of float32, below policy\.min"):
        measure(cell, pass_, 0, SESSION)


def test_no_room_on_the_host_is_an_error_too() -> None:
    cell = make_cell(policy={"family": "offload", "host_cap": 1000})
    with pytest.raises(MatchedNothing, match=r"24\.0 KiB of float32, beyond policy\.host_cap=1,000 B"):
        measure(cell, "memory", 0, SESSION)


@settings(max_examples=25, deadline=None)
@given(
    what=st.sampled_from(WHAT),
    family=st.sampled_from(["gpt_nano", "llama_nano"]),
    attention=st.sampled_from(["eager", "sdpa"]),
    precision=st.sampled_from(["fp32", "bf16-mixed", "bf16-true"]),
    dropout=st.sampled_from([0.0, 0.3]),
    heads=st.sampled_from([(4, 1), (4, 2), (4, 4)]),
    depth=st.integers(2, 4),
    keep_last=st.integers(0, 1),
    seq_len=st.integers(1, 19),
    batch_size=st.integers(1, 3),
    min_bytes=st.sampled_from([0, 500]),
    packed=st.booleans(),
)
def test_the_step_is_bitwise_that_of_none(
    what: str,
    family: str,
    attention: str,
    precision: str,
    dropout: float,
    heads: tuple[int, int],
    depth: int,
    keep_last: int,
    seq_len: int,
    batch_size: int,
    min_bytes: int,
    packed: bool,
) -> None:
    policy = {"family": "offload", "what": what, "keep_last": keep_last, "min_bytes": min_bytes}
    cell = make_cell(
        family,
        policy,
        model_n_layers=depth,
        model_n_heads=heads[0],
        model_n_kv_heads=heads[1] if family == "llama_nano" else heads[0],
        model_d_model=48,
        model_dropout=dropout if family == "gpt_nano" else 0.0,
        attention=attention,
        precision=precision,
        seq_len=seq_len,
        batch_size=batch_size,
        data=DataConfig(kind="packed", mean_length=5) if packed and seq_len > 4 else DataConfig(),
    )
    try:
        found = measure(cell, "parity", 0, SESSION)
    except MatchedNothing:
        assert min_bytes > 0
        assert seq_len * batch_size < 6
        return
    assert found.status == "ok", found.error
    assert found.detail["bitwise"] is True
    assert found.figures["loss_abs_diff"] == 0.0


def test_a_cap_takes_what_comes_first() -> None:
    u = 2 * 32 * 96 * 4
    cell = make_cell(policy={"family": "offload", "host_cap": 2 * u})
    found = measure(cell, "memory", 0, SESSION)
    assert found.figures["host_moved_bytes"] == found.figures["host_peak_bytes"] == 2 * u
    assert found.figures["host_over_cap_bytes"] == u
    assert measure(cell, "parity", 0, SESSION).detail["bitwise"] is True


def test_block_inputs_reach_the_hooks_around_a_region() -> None:
    """Non-reentrant regions keep their inputs through autograd: what this family is built on."""
    subject = build_subject(make_cell(policy={"family": "full"}).config, instrumented=False)
    subject.apply_policy()
    block, seen = subject.model.blocks[0], []
    x, context = torch.randn(2, 32, 96, requires_grad=True), subject.model._context
    tokens = torch.zeros(2, 32, dtype=torch.long)
    shared = context(tokens, torch.arange(32)[None], None)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t.detach(), lambda t: t):
        block(x, shared)
    assert [t.data_ptr() for t in seen if t.shape == x.shape] == [x.data_ptr()]


def test_a_second_backward_over_kept_outputs_is_refused_in_words() -> None:
    policy = {"family": "offload", "what": "selective", "ops": "mm", "keep_last": 0}
    cell = make_cell(policy=policy)
    subject = build_subject(cell.config, instrumented=False)
    subject.apply_policy()
    loss = subject.model(first_batch(cell.config).tokens).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward only"):
        loss.backward()


def test_backward_over_several_forwards() -> None:
    """Gradient accumulation in one graph: two forwards, then one backward."""

    def gradients(policy: dict[str, Any]) -> list[Any]:
        cell = make_cell(policy=policy)
        subject = build_subject(cell.config, instrumented=False)
        subject.apply_policy()
        tokens = first_batch(cell.config).tokens
        (subject.model(tokens).sum() + subject.model(tokens.flip(0)).square().sum()).backward()
        return [p.grad for p in subject.model.parameters()]

    expected = gradients({"family": "none"})
    for what in WHAT:
        found = gradients({"family": "offload", "what": what})
        assert all(map(torch.equal, expected, found)), what


def test_evaluation_moves_nothing() -> None:
    cell = make_cell(policy={"family": "offload", "what": "saved"})
    subject = build_subject(cell.config, instrumented=False)
    applied = subject.apply_policy()
    with torch.no_grad():
        subject.model(first_batch(cell.config).tokens)
    assert applied.host is not None
    assert applied.host.moved_bytes == 0


def test_the_last_blocks_stay() -> None:
    """What the last block keeps is in the device's account, under its own module."""
    for keep_last in (0, 1, 3):
        policy = {"family": "offload", "what": "saved", "keep_last": keep_last}
        found = measure(make_cell(policy=policy), "memory", 0, SESSION)
        per_block = found.figures["host_moved_bytes"] / (4 - keep_last)
        assert per_block == 483328

"""The family compressed: an exact forward, and gradients as close as eight bits allow."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from make_cell import make_cell, make_session

from suite.config.schema import DataConfig
from suite.errors import MatchedNothing, Unsupported, UsageError
from suite.measure import measure
from suite.policies import float8, make_policy, parse_policy
from suite.policies.compressed import ROUNDING, WHAT
from suite.policies.copies import Handle, restore
from suite.policies.entries import Entry
from suite.policies.float8 import FORMATS, Float8Copies, dequantize, quantize

SESSION = make_session()
U = 2 * 32 * 96 * 4  # of llama_nano: 2 sequences of 32 tokens of 96 floats

REFUSED = [
    ({"what": "outputs"}, "policy.what=outputs: expected one of inputs, saved"),
    ({"dtype": "fp8"}, "policy.dtype=fp8: expected one of e4m3, e5m2"),
    ({"scale": "block"}, "policy.scale=block: expected one of tensor, row"),
    ({"min_bytes": "some"}, "policy.min_bytes=some: expected bytes"),
    ({"min_bytes": -5}, "policy.min_bytes=-5: expected a whole number"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=str)
def test_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_policy({"family": "compressed", **options})


def test_bytes_have_one_normal_form() -> None:
    assert parse_policy({"family": "compressed", "min_bytes": "4KiB"}).options == {}
    assert parse_policy({"family": "compressed", "min_bytes": "1MiB"}).options == {"min_bytes": 2**20}


@pytest.mark.parametrize("pass_", ["memory", "flops", "parity", "time"])
@pytest.mark.parametrize("what", WHAT)
def test_nothing_large_enough_is_an_error_that_says_what_there_was(what: str, pass_: str) -> None:
    cell = make_cell(policy={"family": "compressed", "what": what, "min_bytes": "1GiB"})
    with pytest.raises(MatchedNothing, match=r"policy\.what=.*nothing.*KiB of float32, below policy\.min"):
        measure(cell, pass_, 0, SESSION)


# An element is off by half a unit in its last place, or of the smallest number of the format.
SMALLEST = {"e4m3": 2.0**-9, "e5m2": 2.0**-16}


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["e4m3", "e5m2"]),
    rows=st.integers(1, 6),
    columns=st.integers(1, 40),
    exponent=st.integers(-30, 30),
    spread=st.floats(0, 8),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 999),
)
def test_every_element_is_within_the_rounding_of_the_format(
    name: str, rows: int, columns: int, exponent: int, spread: float, dtype: torch.dtype, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    magnitude = 2.0**exponent * torch.exp2(spread * torch.randn(rows, columns, generator=generator))
    x = (magnitude * torch.randn(rows, columns, generator=generator)).to(dtype)
    elements, scales = quantize(x, FORMATS[name])
    assert elements.shape == x.shape
    assert scales.shape == (rows, 1)
    assert scales.dtype == torch.float32
    back = dequantize(elements, scales, torch.float32)
    bound = torch.maximum(x.float().abs() * ROUNDING[name], scales * SMALLEST[name] / 2)
    assert bool(((back - x.float()).abs() <= bound * (1 + 1e-5)).all())


@pytest.mark.parametrize("name", FORMATS)
def test_extremes_stay_finite(name: str) -> None:
    rows = torch.tensor([[0.0, 0.0], [3e38, -3e38], [1e-44, 0.0], [1.0, 1e-38]])
    elements, scales = quantize(rows, FORMATS[name])
    back = dequantize(elements, scales, torch.float32)
    assert bool(torch.isfinite(back).all())
    assert back[0].tolist() == [0.0, 0.0]
    assert torch.allclose(back[1], rows[1])
    assert back[3, 0] == 1.0


def test_a_row_of_its_own_scale_does_not_suffer_from_the_others() -> None:
    x = torch.ones(2, 64)
    x[1] *= 2.0**20
    x.requires_grad_()
    for per_row, error in ((True, 0.0), (False, 1.0)):
        copies = Float8Copies(x.device, 0, FORMATS["e4m3"], per_row=per_row)
        back = restore(copies.keep(x, Entry("e")))
        assert float((back[0] - 1).abs().max()) == error


def test_views_of_one_storage_share_its_copy() -> None:
    copies, entry = Float8Copies(torch.device("cpu"), 0, FORMATS["e4m3"], per_row=True), Entry("e")
    fused = torch.randn(4, 6, 32, requires_grad=True) * 1
    views = [fused.transpose(0, 1), fused[:, 2:], fused.view(4, -1)]
    kept = [copies.keep(view, entry) for view in views]
    assert all(isinstance(k, Handle) for k in kept)
    assert entry.hits == 1
    for view, again in zip(views, map(restore, kept), strict=True):
        assert view.stride() == again.stride()
        assert torch.allclose(view, again, rtol=2.0**-4, atol=1e-2)


def test_what_stays_exact() -> None:
    copies, entry = Float8Copies(torch.device("cpu"), 64, FORMATS["e4m3"], per_row=True), Entry("e")
    weight = torch.nn.Parameter(torch.randn(32, 32))
    grad = torch.randn(32, 32, requires_grad=True)
    stay = {
        "integers": torch.arange(100),
        "a mask": torch.ones(100, dtype=torch.bool),
        "a statistic": torch.randn(100, 8),
        "one number a row": grad.sum(1, keepdim=True),
        "small": grad[0, :8].clone(),
        "a cast of a parameter": weight.to(torch.bfloat16).t(),
        "no smaller with its scales": grad[:, :4].to(torch.bfloat16),
    }
    for name, tensor in stay.items():
        kept = copies.keep(tensor, entry)
        assert isinstance(kept, torch.Tensor), name
        assert torch.equal(kept, tensor), name
    assert entry.hits == 0
    assert isinstance(copies.keep((weight @ grad), entry), Handle)


@settings(max_examples=25, deadline=None)
@given(
    what=st.sampled_from(WHAT),
    dtype=st.sampled_from(["e4m3", "e5m2"]),
    scale=st.sampled_from(["tensor", "row"]),
    family=st.sampled_from(["gpt_nano", "llama_nano"]),
    attention=st.sampled_from(["eager", "sdpa"]),
    precision=st.sampled_from(["fp32", "bf16-mixed", "bf16-true"]),
    dropout=st.sampled_from([0.0, 0.3]),
    kv_heads=st.sampled_from([1, 2, 4]),
    depth=st.integers(1, 4),
    seq_len=st.integers(1, 35),
    batch_size=st.integers(1, 3),
    packed=st.booleans(),
    seed=st.integers(0, 20),
)
def test_the_loss_is_exact_and_gradients_are_within_the_bound(
    what: str,
    dtype: str,
    scale: str,
    family: str,
    attention: str,
    precision: str,
    dropout: float,
    kv_heads: int,
    depth: int,
    seq_len: int,
    batch_size: int,
    packed: bool,
    seed: int,
) -> None:
    policy = {"family": "compressed", "what": what, "dtype": dtype, "scale": scale, "min_bytes": 0}
    cell = make_cell(
        family,
        policy,
        model_n_layers=depth,
        model_n_heads=4,
        model_n_kv_heads=kv_heads if family == "llama_nano" else 4,
        model_d_model=48,
        model_dropout=dropout if family == "gpt_nano" else 0.0,
        attention=attention,
        precision=precision,
        seq_len=seq_len,
        batch_size=batch_size,
        seed=seed,
        data=DataConfig(kind="packed", mean_length=5) if packed and seq_len > 4 else DataConfig(),
    )
    found = measure(cell, "parity", 0, SESSION)
    assert found.status == "ok", found.error
    assert found.figures["loss_abs_diff"] == 0.0
    assert found.figures["rng_equal_count"] == 1
    assert 0 < found.figures["max_grad_rel_diff"] <= 2 * ROUNDING[dtype]
    assert f"backward reads {dtype}" in found.detail["tolerance_reason"]


@pytest.mark.parametrize("factor", [2.0, 1.5, 0.7], ids=str)
@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_a_wrong_scale_is_wrong(
    what: str, dtype: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tolerance is not so wide that it lets a fault through."""
    policy = {"family": "compressed", "what": what, "dtype": dtype}
    assert measure(make_cell("gpt_nano", policy), "parity", 0, SESSION).status == "ok"
    right = float8.dequantize
    monkeypatch.setattr(
        float8, "dequantize", lambda elements, scales, to: right(elements, scales * factor, to)
    )
    found = measure(make_cell("gpt_nano", policy), "parity", 0, SESSION)
    assert found.status == "wrong"
    assert found.error is not None
    assert "gradients differ" in found.error["message"]
    assert found.figures["loss_abs_diff"] == 0.0


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_rows_in_the_place_of_others_are_wrong(
    what: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = float8.dequantize
    monkeypatch.setattr(
        float8, "dequantize", lambda elements, scales, to: right(elements.roll(1, 0), scales, to)
    )
    policy = {"family": "compressed", "what": what, "dtype": dtype}
    found = measure(make_cell("gpt_nano", policy), "parity", 0, SESSION)
    assert found.status == "wrong"
    assert found.figures["max_grad_rel_diff"] > 4 * ROUNDING[dtype]


@pytest.mark.parametrize(("dtype", "reached"), [("e4m3", 0.02), ("e5m2", 0.04)])
def test_the_gap_is_of_the_size_of_the_rounding(dtype: str, reached: float) -> None:
    """Nor so wide that nothing comes near it."""
    policy = {"family": "compressed", "what": "saved", "dtype": dtype}
    found = measure(make_cell(policy=policy), "parity", 0, SESSION)
    assert reached < found.figures["max_grad_rel_diff"] < ROUNDING[dtype]


def test_bytes_kept() -> None:
    full = measure(make_cell(policy={"family": "full"}), "memory", 0, SESSION).figures
    rows = 2 * 32
    for scale, scales in (("tensor", 1), ("row", rows)):
        policy = {"family": "compressed", "scale": scale}
        found = measure(make_cell(policy=policy), "memory", 0, SESSION)
        # Of each of four blocks: an element is one byte instead of four, and the scales are float32.
        assert full["saved_bytes"] - found.figures["saved_bytes"] == 4 * (U - U // 4 - 4 * scales)
        (entry,) = found.detail["entries"]
        assert (entry["name"], entry["hits"], entry["host_bytes"]) == ("inputs", 4, 0)
        assert not any(name.startswith("host_") for name in found.figures)


def test_an_assignment_is_as_exact_as_its_parts() -> None:
    policy = {"family": "assignment", "blocks": {"0": "compressed.saved", "1-3": "offload.saved"}}
    cell = make_cell(policy=policy)
    allowed = make_policy(cell.config.policy).tolerance(cell.config)
    assert allowed is not None
    assert allowed.relative == 2 * ROUNDING["e4m3"]
    assert allowed.exact_forward
    assert measure(cell, "parity", 0, SESSION).status == "ok"
    tiled = make_cell(policy={**policy, "loss": 2})
    looser = make_policy(tiled.config.policy).tolerance(tiled.config)
    assert looser is not None
    assert not looser.exact_forward
    assert measure(tiled, "parity", 0, SESSION).status == "ok"


def test_on_an_accelerator_the_loss_may_differ_as_kernels_do() -> None:
    import dataclasses

    from suite.measure.parity import tolerance_of

    cell = make_cell(policy={"family": "compressed"})
    assert tolerance_of(cell.config).exact_forward
    there = tolerance_of(dataclasses.replace(cell.config, device="cuda"))
    assert there.relative == 2 * ROUNDING["e4m3"]
    assert not there.exact_forward


def test_a_compiled_graph_would_not_run_the_hooks() -> None:
    from suite.config.load import check_policy

    cell = make_cell(policy={"family": "compressed"}, compile="block")
    with pytest.raises(Unsupported, match=r"compile=block: policy=compressed"):
        check_policy(cell)

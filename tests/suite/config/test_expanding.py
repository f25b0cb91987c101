"""Sweeps become cells; scales fit devices; the user always has the last word."""

from collections import Counter
from typing import Any

import hydra
import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_cell import CONF
from omegaconf import DictConfig, OmegaConf

from suite.config.expand import cell_overrides, choose_scale, expand, override_key, session_overrides
from suite.config.load import load_cell, load_passes
from suite.errors import UsageError

CPU = {"type": "cpu", "cores": 2}


@pytest.fixture(autouse=True)
def _hydra() -> Any:
    with hydra.initialize_config_dir(str(CONF.resolve()), version_base="1.3"):
        yield


def compose(overrides: list[str]) -> DictConfig:
    return hydra.compose("config", overrides=overrides)


def cells(*user: str) -> list[Any]:
    overrides = ["scale=cpu", *user]
    return [load_cell(c, CPU) for c in expand(compose(overrides), overrides, compose)]


def test_long_seq_is_at_least_eight_policies_and_four_lengths_by_a_factor_of_eight() -> None:
    found = cells("+sweep=long_seq")
    fused = [c for c in found if c.config.attention == "sdpa"]
    lengths = sorted({c.config.seq_len for c in fused})
    assert len(lengths) >= 4
    assert lengths[-1] == 8 * lengths[0]
    per_length = Counter(c.config.seq_len for c in {c.id: c for c in fused}.values())
    assert min(per_length.values()) >= 8
    eager = {c.config.seq_len for c in found if c.config.attention == "eager"}
    assert len(eager) == 1
    assert eager <= set(lengths)
    assert all(c.config.model.family == "llama" for c in found)


def test_the_user_s_value_replaces_an_axis() -> None:
    found = cells("+sweep=long_seq", "seq_len=64", "policy=full")
    assert {c.config.seq_len for c in found} == {64}
    assert {c.policy_label for c in found} == {"full"}


def test_the_user_s_value_is_stronger_than_the_scale_s() -> None:
    found = cells("+sweep=long_seq", "model=gpt_mini", "batch_size=3")
    assert {c.config.model.name for c in found} == {"gpt_mini"}
    assert {c.config.batch_size for c in found} == {3}
    cfg = compose(["scale=cpu", "+sweep=long_seq"])
    assert "budget=1GiB" in session_overrides(cfg, ["budget=1GiB"])
    assert sum(o.startswith("budget=") for o in session_overrides(cfg, ["budget=1GiB"])) == 1


def test_without_a_sweep_there_is_one_cell() -> None:
    (one,) = cells("seq_len=64")
    assert one.config.seq_len == 64


def test_a_product_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match=r"sweep\.products"):
        cells("sweep.products=[seq_len]")
    with pytest.raises(UsageError, match=r"sweep\.products"):
        cells("sweep.products=[{seq_len: 3}]")


SCALES = [OmegaConf.load(p) for p in sorted((CONF / "scale").glob("*.yaml")) if p.stem != "auto"]


@pytest.mark.parametrize(
    ("device", "gib", "expected"),
    [
        ("cpu", 1, "cpu"),
        ("cpu", 512, "cpu"),
        ("cuda", 8, "gpu_small"),
        ("cuda", 24, "gpu_24gb"),
        ("xpu", 40, "gpu_40gb"),
        ("cuda", 79, "gpu_80gb"),
        ("cuda", 139, "gpu_80gb"),
    ],
)
def test_the_largest_scale_that_fits_is_chosen(device: str, gib: int, expected: str) -> None:
    scales = [s for s in SCALES if isinstance(s, DictConfig)]
    assert choose_scale(scales, device, gib * 2**30) == expected


@given(gib=st.integers(0, 300))
def test_a_larger_device_never_gets_a_smaller_scale(gib: int) -> None:
    scales = [s for s in SCALES if isinstance(s, DictConfig)]
    order = ["gpu_small", "gpu_24gb", "gpu_40gb", "gpu_80gb"]
    here = choose_scale(scales, "cuda", gib * 2**30)
    assert order.index(here) <= order.index(choose_scale(scales, "cuda", (gib + 8) * 2**30))


@pytest.mark.parametrize("scale", [s for s in SCALES if s.device == "accelerator"], ids=lambda s: s.name)
def test_every_scale_gives_valid_cells_on_its_device(scale: Any) -> None:
    overrides = [f"scale={scale.name}", "+sweep=long_seq"]
    gpu = {"type": "cuda", "cores": 16}
    found = [load_cell(c, gpu) for c in expand(compose(overrides), overrides, compose)]
    assert max(c.config.seq_len for c in found) == 8 * min(c.config.seq_len for c in found) or (
        max(c.config.seq_len for c in found) == 16 * min(c.config.seq_len for c in found)
    )


def test_keys_of_the_session_do_not_name_another_sweep() -> None:
    user = ["+sweep=long_seq", "budget=1GiB", "rounds=2", "paths.runs=x", "tracking=none", "seq_len=3"]
    assert cell_overrides(user) == ["seq_len=3"]
    assert override_key("+sweep=long_seq") == "sweep"
    assert override_key("policy.n=2") == "policy.n"


def test_a_product_may_say_which_passes_its_cells_get():
    overrides = ["+sweep.products=[{passes: [memory, flops], seq_len: [8, 16]}, {seq_len: [8]}]"]
    overrides = [o.lstrip("+") for o in overrides]
    composed = list(expand(compose(overrides), overrides, compose))
    assert [load_passes(c) for c in composed][:2] == [("memory", "flops")] * 2
    assert load_passes(composed[2]) == ("memory", "flops", "parity", "time")
    # The user's own passes are stronger than a sweep's.
    user = [*overrides, "passes=[time]"]
    assert {load_passes(c) for c in expand(compose(user), user, compose)} == {("time",)}

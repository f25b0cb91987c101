"""The presets: complete, buildable, and of the published sizes."""

import dataclasses
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_cases import FAMILIES, make_cell
from omegaconf import OmegaConf

import suite
from suite.config.schema import ModelConfig
from suite.models import build_model, check_model
from suite.models.shape import active_parameter_count, parameter_count

CONF = Path(suite.__file__).resolve().parents[1] / "conf"
PRESETS = sorted(path.stem for path in (CONF / "model").glob("*.yaml"))
PUBLISHED = {
    "gpt2_124m": 124_439_808,
    "gpt2_1558m": 1_557_611_200,
    "llama2_7b": 6_738_415_616,
    "llama3_1b": 1_235_814_400,
    "llama_1b": 1_100_048_384,
    "llama3_3b": 3_212_749_824,
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama_160m": 162_417_408,
    "mixtral_8x7b": 46_702_792_704,
    "qwen3_30b_a3b": 30_532_122_624,
}
# Two norms of 128 in each of 48 blocks, which Qwen3 puts on queries and keys.
LEFT_OUT = {"qwen3_30b_a3b": 12_288}


def preset(name):
    node = OmegaConf.load(CONF / "model" / f"{name}.yaml")
    assert set(node) == {f.name for f in dataclasses.fields(ModelConfig)}
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(ModelConfig), node))


def built_count(cell):
    with torch.device("meta"):
        return sum(p.numel() for p in build_model(cell).parameters())


@pytest.mark.parametrize("name", PRESETS)
def test_preset_is_complete_and_buildable(name):
    model = preset(name)
    assert model.name == name
    assert model.source
    cell = make_cell(model, seq_len=256)
    check_model(cell)
    assert built_count(cell) == parameter_count(model)


def test_the_promised_presets_are_there():
    assert set(PRESETS) >= PUBLISHED.keys() | {
        *("gpt_nano", "gpt_mini", "llama_nano", "llama_mini", "moe_nano", "moe_micro")
    }


@pytest.mark.parametrize("name", PUBLISHED)
def test_preset_has_the_published_number_of_parameters(name):
    assert parameter_count(preset(name)) == PUBLISHED[name] - LEFT_OUT.get(name, 0)


@pytest.mark.parametrize(("name", "billions"), [("mixtral_8x7b", 12.9), ("qwen3_30b_a3b", 3.3)])
def test_a_mixture_computes_a_token_with_the_published_number_of_parameters(name, billions):
    """Mixtral: 12.9 of arXiv:2401.04088; Qwen3: 3.3, cut rather than rounded, of its model card."""
    assert active_parameter_count(preset(name)) / 1e9 == pytest.approx(billions, abs=0.06)


def test_every_parameter_of_a_dense_model_is_active():
    model = preset("llama2_7b")
    assert active_parameter_count(model) == parameter_count(model)


@pytest.mark.parametrize(("name", "billions"), [("gpt_22b", 22), ("gpt_175b", 175)])
def test_megatron_sizes_follow_its_formula(name, billions):
    """Narayanan et al. 2021, arXiv:2104.04473, equation 2; it leaves the final norm's 2h out."""
    model = preset(name)
    layers, h, rows = model.n_layers, model.d_model, model.vocab_size + model.max_seq_len
    formula = 12 * layers * h**2 + 13 * layers * h + rows * h
    assert parameter_count(model) == formula + 2 * h
    assert round(formula / 1e9) == billions


@settings(max_examples=40, deadline=None)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    kv=st.integers(1, 3),
    group=st.integers(1, 3),
    width=st.integers(1, 5).map(lambda half: 2 * half),
    own_width=st.booleans(),
    d_ff=st.integers(1, 40),
    layers=st.integers(1, 3),
    tied=st.booleans(),
    experts=st.integers(1, 5),
    shared=st.integers(0, 2),
)
def test_the_count_is_exact_for_any_shape(
    family, kv, group, width, own_width, d_ff, layers, tied, experts, shared
):
    heads, routed = kv * group, family == "moe"
    cell = make_cell(
        FAMILIES[family],
        model_n_heads=heads,
        model_n_kv_heads=kv,
        model_d_model=14 if own_width else heads * width,
        model_head_dim=width if own_width else 0,
        model_d_ff=d_ff,
        model_n_layers=layers,
        model_tied_head=tied,
        **(
            {"model_n_experts": experts, "model_top_k": 1, "model_n_shared_experts": shared}
            if routed
            else {}
        ),
    )
    check_model(cell)
    assert built_count(cell) == parameter_count(cell.model)

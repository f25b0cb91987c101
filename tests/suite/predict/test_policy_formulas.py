"""Every formula that people read, evaluated: it must give the rule's numbers to the byte and to the FLOP."""

import dataclasses
import re
from fractions import Fraction
from typing import Any

import pytest
from make_cell import base_config, make_model

from suite.cell import Cell
from suite.config.load import check_policy
from suite.config.schema import CellConfig, DataConfig
from suite.errors import Unsupported
from suite.policies import FAMILIES, parse_policy
from suite.predict.flops import block_flops
from suite.predict.policies import trunk_of
from suite.predict.policies.formulas import FORMULAS, formula_of
from suite.predict.policies.notation import symbols_of
from suite.predict.policies.representatives import representatives

_TOKEN = re.compile(r"\d+(?:\.\d+)?|Fqkv|Fgu|Fsd|F[gsodhr]|LSE|RSTD|[urκφξANCSDPR]|[-+/()\[\]]")


def evaluate(text: str, values: dict[str, Fraction]) -> Fraction:
    """``u[2 + r(1+2κ)]`` with these values; a factor beside a factor is multiplied."""
    tokens = _TOKEN.findall(text)
    assert "".join(tokens) == text.replace(" ", ""), text
    code, before = [], ""
    for token in tokens:
        if token not in "-+/)]" and before and before not in "-+/([":
            code.append("*")
        plain = {"[": "(", "]": ")"}.get(token, token)
        number = re.fullmatch(r"[\d.]+", token)
        names = re.fullmatch(r"\w+", token) and not number
        code.append(f"F('{token}')" if number else f"V['{token}']" if names else plain)
        before = token
    result: Fraction = eval("".join(code), {"F": Fraction, "V": values})
    return result


WORKLOADS: list[tuple[str, dict[str, Any]]] = [
    ("llama3_8b", {"device": "cuda", "precision": "bf16-true", "seq_len": 8192, "batch_size": 1}),
    ("llama3_8b", {"device": "cuda", "precision": "bf16-true", "attention": "eager"}),
    ("llama_nano", {}),
    ("llama_nano", {"precision": "bf16-true", "batch_size": 3, "seq_len": 33}),
    ("llama_nano", {"attention": "eager", "batch_size": 1}),
    ("llama_nano", {"attention": "eager", "precision": "bf16-true"}),
    ("llama_nano", {"data": DataConfig(kind="packed")}),
    ("gpt_22b", {"device": "cuda", "precision": "bf16-true", "model_dropout": 0.1}),
    ("gpt_22b", {"device": "cuda", "precision": "bf16-true", "attention": "eager", "model_dropout": 0.1}),
    ("gpt_nano", {"model_dropout": 0.0}),
    ("gpt_nano", {"model_dropout": 0.1, "batch_size": 1}),
    ("gpt_nano", {"model_dropout": 0.1, "precision": "bf16-true"}),
    ("mixtral_8x7b", {"device": "cuda", "precision": "bf16-true", "seq_len": 4096}),
    ("moe_nano", {}),
    ("moe_nano", {"attention": "eager", "model_n_shared_experts": 0, "batch_size": 1}),
    ("moe_nano", {"model_n_shared_experts": 2, "model_top_k": 1, "precision": "bf16-true"}),
]


def workload(model: str, changes: dict[str, Any]) -> CellConfig:
    return base_config(make_model(model), **changes)


def with_policy(config: CellConfig, **node: Any) -> CellConfig:
    return dataclasses.replace(config, policy=parse_policy(node))


@pytest.mark.parametrize(("model", "changes"), WORKLOADS, ids=str)
def test_formulas_give_the_numbers_of_the_rules(model: str, changes: dict[str, Any]) -> None:
    values = {name: symbol.value for name, symbol in symbols_of(workload(model, changes)).items()}
    checked = approximate = 0
    for node in representatives():
        config = with_policy(workload(model, changes), **node)
        try:
            check_policy(Cell(config))
        except Unsupported:
            continue
        formula, trunk, depth = formula_of(config), trunk_of(config), config.model.n_layers
        assert trunk.exact
        saved = evaluate(formula.saved, values) * depth
        near = pytest.approx(trunk.saved_bytes, rel=0.05, abs=0.02 * float(values["u"]) * depth)
        assert saved == (trunk.saved_bytes if formula.exact else near), (node, formula.saved)
        assert evaluate(formula.work, values) * depth == trunk.recomputed_flops, (node, formula.work)
        approximate += not formula.exact
        checked += 1
    assert checked > 35
    assert approximate <= 6


@pytest.mark.parametrize(("model", "changes"), WORKLOADS, ids=str)
def test_definitions_are_what_they_define(model: str, changes: dict[str, Any]) -> None:
    config = workload(model, changes)
    symbols = symbols_of(config)
    values = {name: symbol.value for name, symbol in symbols.items()}
    for name in ("A", "N", "C", "Fg"):
        definition = symbols[name].definition
        if "mask" not in definition:
            assert evaluate(definition, values) == values[name], f"{name} = {definition}"
    assert values["Fg"] + values["Fs"] == block_flops(config).total


def test_every_family_has_a_formula_and_a_representative() -> None:
    assert FORMULAS.keys() == FAMILIES.keys()
    assert {node["family"] for node in representatives()} == FAMILIES.keys()


ON_A_CARD: list[tuple[dict[str, Any], str, str]] = [
    ({"family": "none"}, "A", "0"),
    ({"family": "full"}, "u", "Fg - Fd + Fs"),
    ({"family": "full", "early_stop": False}, "u", "Fg + Fs"),
    ({"family": "modules", "targets": "attn"}, "A - ur(1+2κ) - ru - LSE", "Fqkv + Fs"),
    ({"family": "modules", "targets": "mlp"}, "A - 4φu", "Fgu"),
    ({"family": "modules", "targets": "core_attn"}, "A - LSE", "Fs"),
    ({"family": "discard", "targets": "act"}, "A - 2φu", "0"),
    ({"family": "discard", "targets": "norm"}, "A - 2N", "0"),
    ({"family": "discard", "targets": "all"}, "u[2 + r(1+2κ) + 2φ]", "Fs"),
    ({"family": "rebuild", "targets": "norm+act"}, "A - 2N - 2φu", "0"),
    ({"family": "ops", "save": "attn"}, "u + ru + LSE", "Fg - Fd"),
    ({"family": "ops", "save": "mm+attn"}, "u[3 + r(1+2κ) + 2φ] + ru + LSE", "0"),
    ({"family": "ops", "save": "every_second_mm"}, "u[1 + r(1+2κ) + 2φ] + ru + LSE", "Fo"),
    ({"family": "named", "preset": "save_qkv_proj"}, "u[1 + r(1+2κ)]", "Fo + Fgu + Fs"),
    ({"family": "tiled", "loss": 1}, "A - 4φu", "Fgu"),
    ({"family": "segments", "n": 2}, "16u/32", "Fg + Fs - 16Fd/32"),
    ({"family": "offload"}, "u/32", "Fg - Fd + Fs"),
    ({"family": "offload", "what": "module_inputs"}, "2u + 2N - 31(2u)/32", "Fqkv + Fs + Fgu"),
    ({"family": "named", "preset": "qkv_proj_offloaded"}, "u", "Fo + Fgu + Fs"),
    ({"family": "compressed"}, "0.5u", "Fg - Fd + Fs"),
    ({"family": "blocks", "every_n": 2}, "[16u + 16A]/32", "[16(Fg - Fd + Fs)]/32"),
]


@pytest.mark.parametrize(("node", "saved", "work"), ON_A_CARD, ids=str)
def test_formulas_read_as_the_catalogue_writes_them(node: dict[str, Any], saved: str, work: str) -> None:
    config = with_policy(workload(*WORKLOADS[0]), **node)
    formula = formula_of(config)
    assert (formula.saved, formula.work) == (saved, work)


def test_a_budget_is_a_share_of_what_full_leaves_out() -> None:
    config = with_policy(workload("llama_nano", {"compile": "block"}), family="budget", fraction=0.25)
    formula, trunk, depth = formula_of(config), trunk_of(config), config.model.n_layers
    values = {name: symbol.value for name, symbol in symbols_of(config).items()}
    assert formula.saved == "u + 0.25(A - u)"
    assert float(evaluate(formula.saved, values) * depth) == pytest.approx(trunk.saved_bytes, abs=1)
    assert float(evaluate(formula.work, values) * depth) == pytest.approx(trunk.recomputed_flops, abs=1)


# Of policies.md, measured on a CPU at r=1, κ=.5, φ=2.75; there a fused norm and no statistics: u only.
CATALOGUE = [
    ({"family": "discard", "targets": "all"}, 9.5),
    ({"family": "ops", "save": "mm"}, 1 + 2 + 5.5 + 2),
    ({"family": "named", "preset": "save_out_proj"}, 2.0),
    ({"family": "rebuild", "targets": "all"}, 2.0),
]


@pytest.mark.parametrize(("node", "units"), CATALOGUE, ids=str)
def test_units_of_u_at_the_shape_of_the_catalogue(node: dict[str, Any], units: float) -> None:
    shape = {"model_n_kv_heads": 16, "model_d_ff": 11264, "precision": "bf16-true", "device": "cuda"}
    config = with_policy(workload("llama3_8b", shape), **node)
    values = {name: symbol.value for name, symbol in symbols_of(config).items()}
    assert trunk_of(config).saved_bytes / config.model.n_layers / values["u"] == units

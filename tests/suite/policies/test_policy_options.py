"""Options of every family: what is refused, what is the same cell, what cannot apply."""

from typing import Any

import pytest
from make_cell import CONF, make_cell, make_session
from omegaconf import OmegaConf

from suite.config.load import check_policy
from suite.errors import MatchedNothing, Unsupported, UsageError
from suite.measure import measure
from suite.policies import FAMILIES, parse_policy
from suite.policies.entries import operator_name

REFUSED = [
    ({"family": "magic"}, "expected one of none, full"),
    ({"family": "full", "earlystop": True}, "did you mean policy.early_stop"),
    ({"family": "full", "early_stop": "yes"}, "policy.early_stop=yes: expected true or false"),
    ({"family": "segments", "n": 0}, "policy.n=0"),
    ({"family": "segments", "n": "root"}, "policy.n=root"),
    ({"family": "segments", "n": True}, "policy.n=True"),
    ({"family": "blocks"}, "got nothing"),
    ({"family": "blocks", "every_n": 2, "fraction": 0.5}, "every_n and fraction"),
    ({"family": "blocks", "fraction": 1.5}, r"policy.fraction=1.5"),
    ({"family": "blocks", "every_n": -1}, "policy.every_n=-1"),
    ({"family": "blocks", "select": "frist-2"}, "grammar"),
    ({"family": "modules", "targets": ["attention"]}, "attn, mlp, core_attn, norms"),
    ({"family": "modules", "targets": []}, "expected some of"),
    ({"family": "modules", "targets": ["attn", "core_attn"]}, "inside attn"),
    ({"family": "modules", "targets": ["mlp", "mlp"]}, "twice"),
    ({"family": "modules", "targets": ["router", "mlp"]}, "router is inside mlp"),
    ({"family": "modules", "targets": ["mlp", "moe"]}, "moe is mlp: choose one of them"),
    ({"family": "ops", "save": "matmul"}, "expected one of attn, mm"),
    ({"family": "ops", "save": []}, "expected one of attn, mm"),
]


@pytest.mark.parametrize(("node", "message"), REFUSED, ids=str)
def test_refuses_with_the_key_and_what_is_allowed(node: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_policy(node)


def test_every_family_has_its_group_file_and_no_other() -> None:
    files = {path.stem for path in (CONF / "policy").glob("*.yaml")}
    assert files == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_group_file_names_every_option(family: str) -> None:
    node: Any = OmegaConf.to_container(OmegaConf.load(CONF / "policy" / f"{family}.yaml"))
    assert node.pop("family") == family
    import dataclasses

    assert set(node) == {f.name for f in dataclasses.fields(FAMILIES[family].Config)}


def test_a_default_that_is_spelled_out_is_the_same_cell() -> None:
    plain = make_cell(policy={"family": "full"})
    spelled = make_cell(policy={"family": "full", "early_stop": True, "use_reentrant": False})
    assert plain.id == spelled.id
    assert plain.policy_label == "full"
    other = make_cell(policy={"family": "full", "early_stop": False})
    assert other.id != plain.id
    assert other.workload_id == plain.workload_id
    assert other.policy_label == "full(early_stop=false)"


def test_ways_of_writing_an_option_are_the_same_cell() -> None:
    as_list = make_cell(policy={"family": "modules", "targets": ["attn", "mlp"]})
    as_text = make_cell(policy={"family": "modules", "targets": "attn+mlp"})
    assert as_list.id == as_text.id
    dotted = make_cell(policy={"family": "ops", "save": ["aten.mm.default"]})
    colons = make_cell(policy={"family": "ops", "save": ["aten::mm"]})
    assert dotted.id == colons.id


NAMES = [
    ("mm", ["mm", "aten.mm", "aten::mm", "aten.mm.default", "torch.ops.aten.mm.default"]),
    ("add", ["aten::add.Tensor", "aten.add.Tensor"]),
    ("library::op", ["library::op", "library.op", "library::op.default", "torch.ops.library.op.default"]),
]


@pytest.mark.parametrize(("expected", "written"), NAMES)
def test_an_operators_name_is_one_however_it_is_written(expected: str, written: list[str]) -> None:
    assert {operator_name(text) for text in written} == {expected}
    assert operator_name(expected) == expected


def test_the_experts_product_is_a_matrix_product() -> None:
    one = make_cell(policy={"family": "ops", "save": ["recompute_suite.expert_mm"]})
    assert one.id == make_cell(policy={"family": "ops", "save": ["aten.mm"]}).id


CANNOT_APPLY = [
    ({"family": "segments", "n": 9}, {}, "the model has 4 blocks"),
    ({"family": "blocks", "select": "range-8-20"}, {}, "blocks 0 to 3"),
    ({"family": "blocks", "select": "3", "skip_last": True}, {}, "leaves no block"),
    (
        {"family": "modules", "targets": ["attn", "experts"]},
        {},
        r"targets=experts: llama_nano has none; it has attn, mlp, core_attn, norms$",
    ),
    (
        {"family": "modules", "targets": "shared_experts"},
        {"model": "moe_nano"},
        r"moe_nano has none; it has attn, mlp, core_attn, norms, moe, experts, router$",
    ),
    ({"family": "ops", "save": "attn"}, {"attention": "eager"}, "no fused attention operator"),
    ({"family": "ops", "save": "attn"}, {"model": "gpt_nano", "model_dropout": 0.1}, "dropout"),
]


@pytest.mark.parametrize(("policy", "workload", "message"), CANNOT_APPLY, ids=str)
def test_what_cannot_apply_is_said_without_running(
    policy: dict[str, Any], workload: dict[str, Any], message: str
) -> None:
    with pytest.raises(Unsupported, match=message):
        check_policy(make_cell(policy=policy, **workload))


@pytest.mark.parametrize("pass_", ["memory", "flops", "parity", "time"])
def test_an_operator_that_never_runs_is_an_error_that_lists_what_did(pass_: str) -> None:
    cell = make_cell(policy={"family": "ops", "save": ["aten.conv2d"]})
    with pytest.raises(MatchedNothing, match=r"policy\.save=conv2d: matched nothing that ran.*mm"):
        measure(cell, pass_, 0, make_session())


def test_parameter_names_and_state_survive_every_policy() -> None:
    from make_cell import POLICIES

    from suite.measure.setup import build_subject

    before = build_subject(make_cell().config, instrumented=False).model.state_dict()
    for policy in POLICIES:
        subject = build_subject(make_cell(policy=policy).config, instrumented=False)
        subject.apply_policy()
        after = subject.model.state_dict()
        assert list(after) == list(before)
        assert all(after[name].equal(before[name]) for name in before)

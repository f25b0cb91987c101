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
    ({"family": "discard", "targets": "norm+gelu"}, "expected all, or some of norm, act, core_attn"),
    ({"family": "discard", "targets": []}, "expected all, or some of"),
    ({"family": "rebuild", "targets": ["up", "up"]}, "twice"),
    ({"family": "named"}, "set some of policy.qkv=save"),
    ({"family": "named", "preset": "full"}, "policy.preset=full: expected one of save_qkv_proj"),
    ({"family": "named", "qkv": "keep"}, "policy.qkv=keep: expected one of recompute, save, offload"),
    ({"family": "tiled", "mlp": 0}, "policy.mlp=0: expected a whole number >= 1"),
    ({"family": "tiled", "mlp": 1, "loss": 1}, "set policy.mlp or policy.loss"),
    ({"family": "tiled", "loss": 1, "linear_cross_entropy": True}, "set policy.loss to 2"),
    ({"family": "assignment"}, "expected selectors and policies"),
    ({"family": "assignment", "blocks": {"0..3": "full"}}, "grammar"),
    ({"family": "assignment", "blocks": {"0": "fulll"}}, "expected one of none, full"),
    ({"family": "assignment", "blocks": {"0": "none.1"}}, "none has no main option"),
    ({"family": "assignment", "blocks": {"0": "tiled"}}, "write {family:tiled,mlp:4,loss:1}"),
    ({"family": "assignment", "blocks": {"0": "assignment"}}, "an assignment holds no other"),
    ({"family": "assignment", "blocks": {"0": "full"}, "loss": 0}, "policy.loss=0"),
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
    # A layer's product is mm, addmm or linear as torch pleases: one of them means them all.
    assert make_cell(policy={"family": "ops", "save": ["addmm", "mm"]}).id == dotted.id
    every = make_cell(policy={"family": "discard", "targets": "act+core_attn+norm"})
    assert every.id == make_cell(policy={"family": "discard"}).id
    assert every.policy_label == "discard"


def test_policies_of_an_assignment_are_written_in_three_ways() -> None:
    ways = ["segments.2", {"family": "segments", "n": 2}, {"family": "segments", "options": {"n": 2}}]
    cells = [make_cell(policy={"family": "assignment", "blocks": {"0-1": way}}) for way in ways]
    assert len({cell.id for cell in cells}) == 1
    assert cells[0].policy_label == "assignment(blocks=0-1: segments(n=2))"


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
    ({"family": "named", "router": "save"}, {}, "a llama block has no router"),
    ({"family": "tiled", "loss": 33}, {}, "policy.loss=33: the sequence has only 32 tokens"),
    ({"family": "assignment", "blocks": {"9": "full"}}, {}, "blocks 0 to 3"),
    ({"family": "assignment", "blocks": {"0-1": "segments.3"}}, {}, "the model has 2 blocks"),
    ({"family": "rebuild", "targets": "qkv"}, {"attention": "eager"}, "add core_attn"),
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


def test_blocks_of_an_assignment_are_named_once() -> None:
    cell = make_cell(policy={"family": "assignment", "blocks": {"0-2": "none", "first-1": "full"}})
    with pytest.raises(UsageError, match="block 0 is in 0-2 already"):
        check_policy(cell)


def test_entries_of_an_assignment_are_named_after_their_policy() -> None:
    blocks = {"0": "none", "1-2": "discard.norm", "3": "full"}
    cell = make_cell(policy={"family": "assignment", "blocks": blocks, "loss": 2})
    found = measure(cell, "memory", 0, make_session()).detail["entries"]
    hits = {entry["name"]: entry["hits"] for entry in found}
    assert hits == {"discard: norm": 4, "full: blocks": 1, "tiled: loss": 2}


def test_one_entry_of_a_list_that_hits_nothing_is_an_error() -> None:
    cell = make_cell(policy={"family": "ops", "save": ["aten.mm", "aten.bmm"]})
    with pytest.raises(MatchedNothing, match=r"policy\.save=bmm: matched nothing that ran"):
        measure(cell, "flops", 0, make_session())


SPARED = [
    ({"family": "full"}, "blocks", ["mlp.down"]),
    ({"family": "ops", "save": "mm-down"}, "mm", ["attn.qkv", "attn.out", "mlp.gate_up", "mlp.down"]),
    ({"family": "named", "qkv": "save"}, "qkv", ["attn.qkv"]),
]


@pytest.mark.parametrize(("policy", "entry", "parts"), SPARED, ids=str)
def test_spared_and_replayed_flops_of_an_entry(
    policy: dict[str, Any], entry: str, parts: list[str]
) -> None:
    found = measure(make_cell(policy=policy), "flops", 0, make_session())
    work = dict.fromkeys(parts, 0)
    for operator in found.detail["work"]:
        part = operator["place"].removeprefix("blocks.*.")
        if part in work:
            work[part] += operator["forward_flops"]
    row = next(row for row in found.detail["entries"] if row["name"] == entry)
    assert row["spared_flops"] == sum(work.values()) > 0
    recomputed = sum(row["replay_flops"] for row in found.detail["work"])
    assert recomputed == found.figures["recomputed_flops"]
    assert found.figures["blocks_recomputed_count"] == 4

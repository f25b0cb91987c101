"""The family budget: what it refuses, what its fraction does, and why it refuses dropout."""

from pathlib import Path
from typing import Any

import pytest
import torch
from make_cell import make_cell, make_session

from suite.config.load import check_policy
from suite.config.schema import PathsConfig
from suite.errors import MatchedNothing, Unsupported, UsageError
from suite.measure import Measurement, measure
from suite.measure.setup import build_subject, first_batch
from suite.policies import budgeted, parse_policy
from suite.predict.estimate import estimate
from suite.predict.policies import trunk_of
from suite.training.step import model_loss

SHORT = {"model_n_layers": 2, "seq_len": 16}


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    torch.compiler.reset()


@pytest.fixture
def take(tmp_path: Path) -> Any:
    def take(pass_: str, options: dict[str, Any], model: str = "llama_nano", **changes: Any) -> Measurement:
        torch.compiler.reset()
        cell = make_cell(model, {"family": "budget", **options}, **{"compile": "block", **SHORT, **changes})
        return measure(cell, pass_, 0, make_session(paths=PathsConfig(runs=str(tmp_path))))

    return take


REFUSED = [
    ({}, "policy.fraction=None: expected a number from 0 to 1"),
    ({"fraction": 1.5}, "policy.fraction=1.5: expected a number from 0 to 1"),
    ({"fraction": True}, "policy.fraction=True"),
    ({"fraction": 0.5, "solver": "milp"}, "policy.solver=milp: expected one of dp, greedy, ilp"),
    ({"fraction": 0.5, "scope": "trunk"}, "policy.scope=trunk: expected one of auto, block, model"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=str)
def test_refuses_with_the_key_and_what_is_allowed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_policy({"family": "budget", **options})
    assert str(caught.value).startswith(message)


CANNOT_APPLY = [
    ({}, {}, "set compile=block"),
    ({"scope": "model"}, {}, "set compile=model"),
    ({"scope": "model"}, {"compile": "block"}, "set compile=model, or policy.scope=auto"),
    ({"scope": "block"}, {"compile": "model"}, "set compile=block, or policy.scope=auto"),
    ({}, {"compile": "block", "model": "gpt_nano", "model_dropout": 0.1}, "dropout masks afresh"),
]


@pytest.mark.parametrize(("options", "workload", "message"), CANNOT_APPLY, ids=str)
def test_what_cannot_apply_is_said_before_it_runs(
    options: dict[str, Any], workload: dict[str, Any], message: str
) -> None:
    policy = {"family": "budget", "fraction": 0.5, **options}
    with pytest.raises(Unsupported, match=message):
        check_policy(make_cell(policy=policy, **workload))


def test_some_blocks_cannot_have_a_budget_within_one_graph_of_the_model() -> None:
    policy = {"family": "assignment", "blocks": {"0": "budget.0", "1": "none"}}
    check_policy(make_cell(policy=policy, compile="block"))
    with pytest.raises(Unsupported, match="set compile=block"):
        check_policy(make_cell(policy=policy, compile="model"))


def test_a_whole_number_is_the_same_cell() -> None:
    one = make_cell(policy={"family": "budget", "fraction": 1})
    assert one.id == make_cell(policy={"family": "budget", "fraction": 1.0}).id
    assert one.policy_label == "budget(fraction=1.0)"


@pytest.mark.parametrize("scope", ["block", "model"])
def test_all_of_it_is_what_plain_compilation_keeps(take: Any, tmp_path: Path, scope: str) -> None:
    session = make_session(paths=PathsConfig(runs=str(tmp_path)))
    plain = measure(make_cell(compile=scope, **SHORT), "memory", 0, session)
    whole = take("memory", {"fraction": 1}, compile=scope)
    assert whole.figures["saved_bytes"] == plain.figures["saved_bytes"]
    assert whole.figures["peak_bytes"] == plain.figures["peak_bytes"]


def test_nothing_of_it_is_full_recomputation_of_each_block(take: Any) -> None:
    cell = make_cell(policy={"family": "full"}, **SHORT)
    expected = estimate(cell.config)
    assert take("memory", {"fraction": 0}).figures["saved_bytes"] == expected.saved_bytes
    flops = take("flops", {"fraction": 0})
    assert flops.figures["executed_flops"] == expected.step_flops
    assert flops.detail["entries"] == [{"name": "budget", "hits": 2}]


def test_nothing_of_the_model_keeps_its_output_alone_and_is_no_bound_on_the_peak(
    take: Any, tmp_path: Path
) -> None:
    deeper = {"model_n_layers": 4, "seq_len": 32}
    session = make_session(paths=PathsConfig(runs=str(tmp_path)))
    plain = measure(make_cell(compile="model", **deeper), "memory", 0, session).figures
    none = take("memory", {"fraction": 0}, compile="model", **deeper).figures
    assert none["saved_bytes"] == 4 * 2 * 32 * 512  # the logits
    assert none["activation_bytes"] > plain["activation_bytes"]


def test_a_share_keeps_something_in_between(take: Any) -> None:
    saved = [take("memory", {"fraction": f}).figures["saved_bytes"] for f in (0, 0.5, 1)]
    assert saved[0] < saved[1] < saved[2]


@pytest.mark.parametrize("solver", ["dp", "greedy", "ilp"])
def test_a_share_recomputes_and_every_gradient_is_right(take: Any, solver: str) -> None:
    options = {"fraction": 0.5, "solver": solver}
    assert take("flops", options).figures["recomputed_flops"] > 0
    parity = take("parity", options)
    assert parity.status == "ok", parity.error
    assert parity.detail["bitwise"] is True


def test_each_block_may_have_a_budget_of_its_own(tmp_path: Path) -> None:
    session = make_session(paths=PathsConfig(runs=str(tmp_path)))

    def saved(first: str, second: str) -> float:
        torch.compiler.reset()
        policy = {"family": "assignment", "blocks": {"0": first, "1": second}}
        cell = make_cell(policy=policy, compile="block", **SHORT)
        return measure(cell, "memory", 0, session).figures["saved_bytes"]

    nothing, mixed, all_ = saved("budget.0", "budget.0"), saved("budget.0", "none"), saved("none", "none")
    assert mixed - nothing == all_ - mixed > 0


@pytest.mark.parametrize("fraction", [0.5, 0])
def test_dropout_is_refused_because_torch_draws_its_masks_afresh(take: Any, fraction: float) -> None:
    """Should this fail, torch has learnt to keep the masks: then Budget need not refuse dropout."""
    dropout = {"model": "gpt_nano", "model_dropout": 0.1}
    found = take("parity", {"fraction": fraction}, **dropout)
    assert found.status == "wrong"
    assert "gradients differ" in found.error["message"]
    assert found.figures["max_grad_rel_diff"] > 0.1
    assert take("parity", {"fraction": 1}, **dropout).status == "ok"


def test_a_budget_that_nothing_compiled_took_is_an_error() -> None:
    subject = build_subject(
        make_cell(policy={"family": "budget", "fraction": 0.5}).config, instrumented=False
    )
    applied = subject.apply_policy()
    model_loss(subject.model, first_batch(subject.config), lambda _: None)
    with pytest.raises(MatchedNothing, match="policy=budget: matched nothing that ran"):
        applied.verify()


def test_without_a_budget_by_region_the_setting_of_the_partitioner_does_the_same(
    take: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_region = take("memory", {"fraction": 0.5}).figures["saved_bytes"]
    monkeypatch.setattr(budgeted, "_region", None)
    assert take("memory", {"fraction": 0.5}).figures["saved_bytes"] == by_region
    assert torch._functorch.config.activation_memory_budget == 1.0
    with pytest.raises(Unsupported, match="one budget for all blocks"):
        budgeted.partitioner(0.5, "dp", whole=False)


def test_the_estimate_is_one_and_lies_between_none_and_full() -> None:
    def of(**policy: Any) -> int:
        return trunk_of(make_cell(policy=policy, compile="block").config).saved_bytes

    half = trunk_of(make_cell(policy={"family": "budget", "fraction": 0.5}, compile="block").config)
    assert not half.exact
    assert of(family="full") < half.saved_bytes < of(family="none")
    assert of(family="budget", fraction=0) == of(family="full")
    assert of(family="budget", fraction=1) == of(family="none")

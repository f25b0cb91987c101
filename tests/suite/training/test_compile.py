"""What is compiled, in which order, what survives it and what is refused."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from make_cell import make_cell, make_session

from suite.config.load import check_policy
from suite.config.schema import PathsConfig
from suite.errors import Unsupported, UsageError
from suite.measure import measure
from suite.measure.compiled import compiled_anew, warm_up
from suite.measure.setup import build_subject, first_batch
from suite.policies.traced import rules_in
from suite.predict.estimate import estimate
from suite.predict.flops import block_flops
from suite.training.compile import patched
from suite.training.compile_cache import private_cache
from suite.training.step import model_loss

SHORT = {"model_n_layers": 2, "seq_len": 16}


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    torch.compiler.reset()


def executed_flops(policy: dict[str, Any], runs: Path, **changes: Any) -> float:
    cell = make_cell(policy=policy, **{"compile": "block", **SHORT, **changes})
    return measure(cell, "flops", 0, make_session(paths=PathsConfig(runs=str(runs)))).figures[
        "executed_flops"
    ]


def predicted_flops(policy: dict[str, Any]) -> int:
    return estimate(make_cell(policy=policy, **SHORT).config).step_flops


SURVIVES = [
    {"family": "none"},
    {"family": "full"},
    {"family": "segments", "n": 2},
    {"family": "blocks", "select": "0"},
    {"family": "modules", "targets": ["mlp"]},
    {"family": "discard", "targets": ["act"]},
    {"family": "ops", "save": "attn"},
    {"family": "ops", "save": "mm"},
    {"family": "ops", "save": "mm+attn"},
    {"family": "ops", "save": "every_second_mm"},
    {"family": "assignment", "blocks": {"0": "full", "1": "ops.mm"}},
]


@pytest.mark.parametrize("policy", SURVIVES, ids=str)
def test_a_compiled_policy_executes_exactly_the_flops_of_its_formula(
    policy: dict[str, Any], tmp_path: Path
) -> None:
    assert executed_flops(policy, tmp_path) == predicted_flops(policy)


def test_a_product_at_the_end_of_a_region_is_replayed_where_backward_reads_its_output(
    tmp_path: Path,
) -> None:
    """Eager mode keeps what comes out of a region. A compiled graph may rebuild it, with its product."""
    flops = block_flops(make_cell(**SHORT).config)
    norm, attn = {"family": "discard", "targets": ["norm"]}, {"family": "modules", "targets": ["attn"]}
    assert executed_flops(norm, tmp_path) - predicted_flops(norm) == 2 * flops.up
    torch.compiler.reset()
    assert executed_flops(attn, tmp_path) - predicted_flops(attn) == 2 * flops.out


def test_one_graph_of_the_model_replays_the_last_product_before_its_head_too(tmp_path: Path) -> None:
    flops = block_flops(make_cell(**SHORT).config)
    full = {"family": "full"}
    assert executed_flops(full, tmp_path, compile="model") - predicted_flops(full) == flops.down


LOST = [
    ({"family": "rebuild"}, "policy=rebuild chooses in Python"),
    ({"family": "named", "qkv": "save"}, "policy=named chooses in Python"),
    ({"family": "ops", "save": "mm-down"}, r"use compile=none, policy\.save=mm or policy=budget"),
    (
        {"family": "full", "use_reentrant": True},
        r"policy\.use_reentrant=true: has no effect on compiled code",
    ),
    ({"family": "full", "early_stop": False}, r"policy\.early_stop=false: has no effect on compiled code"),
    ({"family": "full", "preserve_rng_state": False}, r"policy\.preserve_rng_state=false: has no effect"),
    ({"family": "assignment", "blocks": {"0": "none", "1": "rebuild"}}, "policy=rebuild chooses in Python"),
]


@pytest.mark.parametrize(("policy", "message"), LOST, ids=str)
def test_what_compilation_would_lose_is_said_before_it_runs(policy: dict[str, Any], message: str) -> None:
    check_policy(make_cell(policy=policy))
    with pytest.raises(Unsupported, match=message):
        check_policy(make_cell(policy=policy, compile="block"))


@pytest.mark.parametrize("scope", ["block", "model"])
def test_names_stay_and_one_graph_serves_equal_blocks(scope: str) -> None:
    before = build_subject(make_cell().config, instrumented=False).model.state_dict()
    subject = build_subject(make_cell(policy={"family": "full"}, compile=scope).config, instrumented=True)
    assert subject.paths is None
    warm = warm_up(subject, subject.apply_policy())
    after = subject.model.state_dict()
    assert list(after) == list(before)
    assert all(after[name].equal(before[name]) for name in before)
    assert warm.graphs_count == 1
    assert [(e.name, e.hits) for e in warm.entries] == [("blocks", 4)]


def test_a_policy_inside_what_is_compiled_is_what_the_graph_holds() -> None:
    subject = build_subject(
        make_cell(policy={"family": "modules", "targets": "attn+mlp"}).config, instrumented=False
    )
    subject.apply_policy()
    found = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        found.append(rules_in(graph.graph))
        return graph.forward

    block = subject.model.blocks[0]
    block.forward = torch.compile(block.forward, backend=backend, fullgraph=True)
    model_loss(subject.model, first_batch(subject.config), lambda _: None)
    assert found == [{"attn": 1, "mlp": 1}]


def test_as_many_different_rules_as_blocks(tmp_path: Path) -> None:
    """Blocks share their code, and torch gives up on code after eight graphs unless it is told."""
    tiny = {
        "model_n_layers": 9,
        "model_d_model": 8,
        "model_n_heads": 2,
        "model_n_kv_heads": 1,
        "model_d_ff": 8,
    }
    policy = {"family": "assignment", "blocks": {str(i): f"budget.{i}" for i in (0, 1)}}
    policy["blocks"] |= {str(i): {"family": "budget", "fraction": i / 10} for i in range(2, 9)}
    subject = build_subject(
        make_cell(policy=policy, compile="block", seq_len=4, **tiny).config, instrumented=False
    )
    assert warm_up(subject, subject.apply_policy()).graphs_count == 9


def test_what_is_compiled_again_is_noticed() -> None:
    subject = build_subject(make_cell(compile="block", **SHORT).config, instrumented=False)
    warm = warm_up(subject, subject.apply_policy())
    assert compiled_anew(subject, warm) == []
    longer = make_cell(seq_len=20).config
    model_loss(subject.model, first_batch(longer), lambda _: None)
    assert compiled_anew(subject, warm) == ["1 graphs were compiled again after the warm-up"]


def test_a_graph_break_is_an_error_that_says_so() -> None:
    subject = build_subject(make_cell(compile="block", **SHORT).config, instrumented=False)
    block = subject.model.blocks[0]
    inner = block.forward

    def forward(*args: Any) -> Any:
        torch._dynamo.graph_break()
        return inner(*args)

    block.forward = forward
    with pytest.raises(Unsupported, match="compile=block: torch does not trace policy=none into one graph"):
        warm_up(subject, subject.apply_policy())


@pytest.mark.parametrize(
    "changes", [{"attention": "eager"}, {"attention": "flash"}, {"precision": "bf16-mixed"}], ids=str
)
@pytest.mark.parametrize("model", ["llama_nano", "gpt_nano"])
def test_every_kernel_traces_into_one_graph(model: str, changes: dict[str, Any]) -> None:
    workload = {"compile": "model", "model_dropout": 0.0, **SHORT, **changes}
    subject = build_subject(make_cell(model, {"family": "full"}, **workload).config, instrumented=False)
    assert warm_up(subject, subject.apply_policy()).graphs_count == 1


def test_the_backend_is_part_of_a_cell_only_where_something_is_compiled() -> None:
    plain, compiled = make_cell(), make_cell(compile="block", compile_backend="inductor")
    eager = make_cell(compile="block", compile_backend="aot_eager")
    assert "compile_backend" not in plain._identity()
    assert len({plain.id, compiled.id, eager.id}) == 3
    assert plain.workload_label == "llama_nano s=32 b=2 fp32 sdpa adamw-foreach cpu"
    assert compiled.workload_label == "llama_nano s=32 b=2 fp32 sdpa adamw-foreach compile=block cpu"
    assert "compile=block/aot_eager cpu" in eager.workload_label


def test_inductor_without_a_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    check_policy(make_cell(compile="block"))
    with pytest.raises(
        Unsupported, match=r"no C\+\+ compiler no-such-compiler: install one \(apt install g\+\+\)"
    ):
        check_policy(make_cell(compile="block", compile_backend="inductor"))


def test_the_compiler_s_cache_is_private_and_the_timed_one_empty(tmp_path: Path) -> None:
    (tmp_path / "compile_cache").mkdir(mode=0o777)
    before = dict(os.environ)
    with private_cache(tmp_path, cold=False) as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder)
        (folder / "left").touch()
    with private_cache(tmp_path, cold=True) as cold:
        assert cold.parent == folder
        assert list(cold.iterdir()) == []
    assert not cold.exists()
    assert os.environ == before


def test_a_cache_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(UsageError, match="belongs to another user"), private_cache(tmp_path, cold=False):
        pass


def test_a_knob_that_torch_does_not_have_is_not_passed_over() -> None:
    with pytest.raises(Unsupported, match=r"has no torch\._functorch\.config\.no_such_knob"):
        patched("torch._functorch.config", {"no_such_knob": 1})

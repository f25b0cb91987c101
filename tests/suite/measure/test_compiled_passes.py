"""The four passes over compiled cells."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from make_cell import make_cell, make_session

from suite.config.schema import CellConfig, PathsConfig
from suite.measure import Measurement, flops, measure
from suite.measure.account import PHASES
from suite.measure.memory import measure_memory
from suite.predict.estimate import estimate

SHORT = {"model_n_layers": 2, "seq_len": 16}
# What torch.get_rng_state returns: the state of a Mersenne twister. Every checkpointed region keeps one.
RANDOM_STATE = torch.get_rng_state().nbytes


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    torch.compiler.reset()


def take(runs: Path, pass_: str, policy: dict[str, Any], **changes: Any) -> Measurement:
    cell = make_cell(policy=policy, **{"compile": "block", **SHORT, **changes})
    return measure(cell, pass_, 0, make_session(paths=PathsConfig(runs=str(runs))))


# Family, and the random states that are kept: the dispatch mode of the tracker is never told of those.
ON_BOTH = [({"family": "none"}, 0), ({"family": "full"}, 2), ({"family": "ops", "save": "mm"}, 2)]


@pytest.mark.parametrize(("policy", "states"), ON_BOTH, ids=str)
@pytest.mark.parametrize("model", ["llama_nano", "gpt_nano"])
def test_the_profiler_and_the_tracker_agree_where_both_can_see(
    policy: dict[str, Any], states: int, model: str
) -> None:
    config = make_cell(model, policy, model_dropout=0.0, **SHORT).config
    tracker, profiler = (measure_memory(config, meter) for meter in ("tracker", "profiler"))
    assert profiler.detail["meter"] == "profiler"
    unseen = states * RANDOM_STATE
    for name in ("static_bytes", "batch_bytes", "parameter_bytes", "optimizer_state_bytes"):
        assert profiler.figures[name] == tracker.figures[name]
    assert profiler.figures["saved_bytes"] == tracker.figures["saved_bytes"] + unseen
    for phase in PHASES:
        # A kernel's own workspace is seen by the profiler alone.
        inside = profiler.figures[f"peak_{phase}_bytes"] - tracker.figures[f"peak_{phase}_bytes"]
        assert 0 <= inside <= unseen + 0.02 * tracker.figures["peak_bytes"], phase
    assert sum(profiler.detail["peak_composition"].values()) == profiler.figures["peak_bytes"]
    names = {row["operator"] for row in profiler.detail["kept"]}
    assert "aten::mm" in names or "aten::addmm" in names


@pytest.mark.parametrize("policy", [{"family": "none"}, {"family": "full"}], ids=str)
def test_memory_is_repeatable_and_at_most_that_of_the_formula(
    policy: dict[str, Any], tmp_path: Path
) -> None:
    first = take(tmp_path, "memory", policy)
    torch.compiler.reset()
    second = take(tmp_path, "memory", policy)
    assert first.figures == second.figures
    assert first.detail["peak_composition"] == second.detail["peak_composition"]
    states = 2 if policy["family"] == "full" else 0
    # Fused attention counts as drawing random numbers, so that its replay is given the state.
    expected = estimate(make_cell(policy=policy, **SHORT).config).saved_bytes + states * RANDOM_STATE
    if policy["family"] == "full":
        assert first.figures["saved_bytes"] == expected
    else:  # The partitioner rebuilds what costs no product even where nobody asks for it.
        assert first.figures["saved_bytes"] < expected
    assert first.warnings == []
    assert "first_step_peak_bytes" not in first.figures
    assert [e["hits"] for e in first.detail["entries"]] == [2] * (states // 2)


def test_parity_is_bitwise_where_operators_stay_operators(tmp_path: Path) -> None:
    found = take(tmp_path, "parity", {"family": "ops", "save": "mm+attn"}, compile="model")
    assert found.status == "ok", found.error
    assert found.detail["bitwise"] is True
    assert found.detail["tolerance"] == 0.0
    assert "block_forwards_count" not in found.figures


def test_dropout_is_the_same_in_a_compiled_replay(tmp_path: Path) -> None:
    cell = make_cell("gpt_nano", {"family": "full"}, compile="block", model_dropout=0.2, **SHORT)
    found = measure(cell, "parity", 0, make_session(paths=PathsConfig(runs=str(tmp_path))))
    assert found.status == "ok", found.error
    assert found.figures["rng_equal_count"] == 1


@pytest.mark.parametrize("scope", ["block", "model"])
def test_compilation_is_timed_apart_and_happens_once(tmp_path: Path, scope: str) -> None:
    found = take(tmp_path, "time", {"family": "full"}, compile=scope)
    assert found.figures["compile_time_s"] >= 0
    assert not any("compiled again" in warning for warning in found.warnings)
    assert list((tmp_path / "compile_cache").iterdir()) == []


def test_inductor_does_what_the_policy_says(tmp_path: Path) -> None:
    policy, inductor = {"family": "full"}, {"compile_backend": "inductor"}
    predicted = estimate(make_cell(policy=policy, **SHORT).config)
    counted = take(tmp_path, "flops", policy, **inductor)
    assert counted.detail["counted_on"] == "inductor"
    assert counted.figures["executed_flops"] == predicted.step_flops
    torch.compiler.reset()
    memory = take(tmp_path, "memory", policy, **inductor)
    assert memory.figures["saved_bytes"] == predicted.saved_bytes + 2 * RANDOM_STATE
    torch.compiler.reset()
    parity = take(tmp_path, "parity", policy, **inductor)
    assert parity.status == "ok", parity.error
    assert "inductor may fuse" in parity.detail["tolerance_reason"]


def test_products_that_inductor_hides_in_kernels_are_counted_on_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = flops._count_compiled

    def hiding(config: CellConfig) -> Any:
        counter, forward, warm = count(dataclasses.replace(config, compile_backend="aot_eager"))
        counter.total_flops //= 2 if config.compile_backend == "inductor" else 1
        return counter, forward, warm

    monkeypatch.setattr(flops, "_count_compiled", hiding)
    found = take(tmp_path, "flops", {"family": "none"}, compile_backend="inductor")
    assert found.detail["counted_on"] == "aot_eager"
    assert found.figures["recomputed_flops"] == 0

"""The memory pass on real cells: exact, repeatable, explained."""

import pytest
from make_cell import POLICIES, make_cell, make_session, policy_id

from suite.config.schema import OptimizerConfig
from suite.measure import measure

SESSION = make_session()


def _memory(**changes: object) -> dict[str, float]:
    return measure(make_cell(**changes), "memory", 0, SESSION).figures


@pytest.mark.parametrize("policy", POLICIES, ids=policy_id)
def test_twice_the_same_bytes_and_the_same_explanation(policy: dict[str, object]) -> None:
    first = measure(make_cell(policy=policy), "memory", 0, SESSION)
    second = measure(make_cell(policy=policy), "memory", 0, SESSION)
    assert first == second
    detail, figures = first.detail, first.figures
    assert sum(detail["peak_composition"].values()) == figures["peak_bytes"]
    assert max(detail["phase_peaks"].values()) == figures["peak_bytes"]
    assert detail["phase_peaks"][detail["peak_phase"]] == figures["peak_bytes"]
    assert len(detail["top_tensors"]) == 10
    assert max(live for _, live, _ in detail["live_bytes"]) == figures["peak_bytes"]
    assert figures["saved_bytes"] == (
        figures["saved_in_blocks_bytes"] + figures["saved_outside_blocks_bytes"]
    )


def test_static_bytes_are_parameters_and_optimizer_states() -> None:
    adamw = _memory(optimizer=OptimizerConfig("adamw", "fused"))
    parameters = adamw["parameter_bytes"]
    count = len(make_names())
    # AdamW keeps two moments of each parameter, and a 4-byte step count.
    assert adamw["optimizer_state_bytes"] == 2 * parameters + 4 * count
    sgd = _memory(optimizer=OptimizerConfig("sgd", "foreach"))
    assert sgd["optimizer_state_bytes"] == parameters
    plain = _memory(optimizer=OptimizerConfig("sgd", "foreach", momentum=0.0))
    assert plain["optimizer_state_bytes"] == 0
    assert plain["static_bytes"] == parameters


def make_names() -> list[str]:
    from suite.measure.setup import build_subject

    subject = build_subject(make_cell().config, instrumented=False)
    return [name for name, _ in subject.model.named_parameters()]


def test_the_first_step_is_where_states_are_born() -> None:
    figures = _memory(optimizer=OptimizerConfig("adamw", "fused"), seq_len=64)
    assert figures["first_step_peak_bytes"] < figures["peak_bytes"]


def test_a_foreach_optimizer_needs_a_workspace_that_a_fused_one_does_not() -> None:
    foreach = _memory(optimizer=OptimizerConfig("adamw", "foreach"))
    fused = _memory(optimizer=OptimizerConfig("adamw", "fused"))
    assert foreach["peak_optimizer_bytes"] > fused["peak_optimizer_bytes"]
    assert foreach["saved_bytes"] == fused["saved_bytes"]


def test_the_optimizer_hides_a_policy_and_the_phase_says_so() -> None:
    """With AdamW in the step two policies can have one peak: without the phase they look worthless."""
    short = {"seq_len": 4, "batch_size": 1}
    peaks = {}
    for family in ("none", "full"):
        found = measure(make_cell(policy={"family": family}, **short), "memory", 0, SESSION)
        assert found.detail["peak_phase"] == "optimizer"
        peaks[family] = found.figures["peak_bytes"]
    assert peaks["none"] == peaks["full"]


def test_one_region_round_the_whole_trunk_saves_nothing_at_the_peak() -> None:
    long = {"seq_len": 256, "optimizer": OptimizerConfig("adamw", "fused")}
    none = _memory(**long)
    whole = _memory(policy={"family": "segments", "n": 4}, **long)
    per_block = _memory(policy={"family": "full"}, **long)
    assert whole["saved_bytes"] < per_block["saved_bytes"] < none["saved_bytes"]
    assert whole["activation_bytes"] > 0.8 * none["activation_bytes"]
    assert per_block["activation_bytes"] < 0.5 * none["activation_bytes"]


def test_recomputing_the_last_block_too_does_not_lower_the_peak() -> None:
    # With a small head: the logits of a large one are alive beside what the last block keeps.
    long = {"seq_len": 256, "optimizer": OptimizerConfig("adamw", "fused"), "model_vocab_size": 4}
    every = _memory(policy={"family": "full"}, **long)
    but_last = _memory(policy={"family": "blocks", "fraction": 1.0, "skip_last": True}, **long)
    assert but_last["peak_bytes"] <= every["peak_bytes"]


def test_reentrant_regions_never_need_less() -> None:
    long = {"seq_len": 128, "optimizer": OptimizerConfig("adamw", "fused")}
    plain = _memory(policy={"family": "full"}, **long)
    reentrant = _memory(policy={"family": "full", "use_reentrant": True}, **long)
    assert plain["peak_bytes"] <= reentrant["peak_bytes"]


def test_a_large_vocabulary_puts_the_peak_in_the_head_and_names_it() -> None:
    cell = make_cell(
        policy={"family": "full"},
        seq_len=128,
        model_vocab_size=8192,
        optimizer=OptimizerConfig("sgd", "fused", momentum=0.0),
    )
    found = measure(cell, "memory", 0, SESSION)
    assert found.detail["peak_phase"] in ("loss", "backward")
    largest = found.detail["top_tensors"][0]
    assert largest["bytes"] == 4 * 2 * 128 * 8192
    assert largest["shape"][-1] == 8192


def test_rebuilt_tensors_are_told_from_kept_ones() -> None:
    found = measure(make_cell(policy={"family": "full"}, seq_len=128), "memory", 0, SESSION)
    assert found.detail["peak_composition"]["recomputed"] > 0
    plain = measure(make_cell(seq_len=128), "memory", 0, SESSION)
    assert "recomputed" not in plain.detail["peak_composition"]


def test_each_top_tensor_says_where_it_comes_from() -> None:
    found = measure(make_cell(seq_len=256), "memory", 0, SESSION)
    for tensor in found.detail["top_tensors"]:
        if tensor["kind"] == "activation":
            assert tensor["operator"].startswith("aten::")
            assert tensor["phase"] in ("forward", "loss")
            assert tensor["module"].startswith(("blocks.", "embed", "norm", "head")) or not tensor["module"]
        if tensor["kind"] == "parameter":
            assert tensor["name"] in make_names()

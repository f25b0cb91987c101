"""Every published row becomes something, and what is asked of it is what its source says."""

from collections import Counter

import pytest

from analysis.validate.case import Case, Partner, Unmodelled, rows_by_outcome
from analysis.validate.megatron import kernel_of, request_of
from analysis.validate.rows import half_of, read_rows
from analysis.validate.sources import SOURCES, outcomes_of
from suite.cell import config_of
from suite.errors import UsageError
from suite.models.check import check_kernel, check_model
from suite.policies import make_policy


@pytest.fixture(scope="module")
def rows():
    return read_rows()


@pytest.fixture(scope="module")
def outcomes(rows):
    return outcomes_of(rows)


def golden(rows, model, file="dev_dgx_a100"):
    return next(
        r for r in rows if r.model == model and r.source_ref.endswith(f"/golden_values_{file}.json")
    )


def cases_of(outcomes, row_id):
    return [o for o in outcomes if isinstance(o, Case) and o.row_id == row_id]


def test_all_rows_are_read_and_none_is_lost(rows, outcomes):
    assert len(rows) == len({row.row_id for row in rows}) == 1324
    by = {name: len(found) for name, found in rows_by_outcome(outcomes).items()}
    assert by == {"case": 718, "partner": 10, "unmodelled": 596}
    assert sum(by.values()) == 1324
    assert {o.row_id for o in outcomes} == {row.row_id for row in rows}


def test_every_source_has_its_function(rows):
    assert {row.file for row in rows} == SOURCES.keys()


def test_what_is_compared_by_source(outcomes):
    counts = Counter((o.source, o.kind) for o in outcomes if isinstance(o, Case))
    assert counts["megatron_lm_golden", "memory"] == 855
    assert counts["llm_foundry_mpt", "fits"] == 209
    assert counts["torchtitan", "memory"] == 4
    assert counts["korthikanti2022_layer_times_22b", "time_ratio"] == 4


def test_every_reason_is_a_sentence_and_every_partner_a_row(rows, outcomes):
    ids = {row.row_id for row in rows}
    assert all(len(o.reason) > 3 for o in outcomes if isinstance(o, Unmodelled))
    assert all(o.of in ids for o in outcomes if isinstance(o, Partner))


def test_everything_that_is_asked_is_a_cell_that_the_suite_accepts(outcomes):
    asked = {repr(r): r for o in outcomes if isinstance(o, Case) for r in o.requests}
    for request in asked.values():
        config = config_of(request["config"])
        check_model(config)
        check_kernel(config)
        policy = make_policy(config.policy)
        policy.check(config)
        policy.check_compile(config)
        parallel = config.parallel
        assert config.model.n_heads % parallel.tp == 0
        assert config.model.n_layers % parallel.pp == 0
        assert parallel.stage < parallel.pp


def test_units_are_the_sources_own(rows, outcomes):
    by_id = {row.row_id: row for row in rows}
    assert by_id["torchtitan-012"].mem_bytes == 82.4 * 2**30
    assert by_id["megatron_bridge_h100-000"].mem_bytes == 36.618 * 10**9
    assert by_id["torchtitan-044"].mem_bytes is None, "a percentage of the card"
    assert by_id["torchtitan-008"].mem_value is None
    assert by_id["torchtitan-008"].mem_text == ">80"
    (case,) = cases_of(outcomes, "hf_and_frameworks-004")
    assert case.expected == 36 * 2**30, "written as GB, and by its own product GiB"
    (case,) = cases_of(outcomes, "hf_and_frameworks-003")
    assert case.expected == pytest.approx(8 * 8192 * 1024 * 2, rel=1e-9), "written as MB, and MiB"
    (case,) = cases_of(outcomes, "hf_and_frameworks-012")
    assert case.expected == pytest.approx(-7.1e9)


def test_a_megatron_run_is_asked_of_its_last_rank(rows):
    config = config_of(request_of(golden(rows, "gpt3_mcore_te_tp1_pp4_vp1"))["config"])
    parallel = config.parallel
    assert (parallel.dp, parallel.tp, parallel.pp, parallel.stage) == (2, 1, 4, 3)
    assert (parallel.vpp, parallel.micro_batches, parallel.zero) == (3, 4, 0)
    assert (parallel.recipe, config.precision, config.attention) == ("megatron", "bf16-true", "eager")
    assert (config.model.vocab_size, config.model.d_ff, config.model.dropout) == (50304, 2048, 0.1)
    assert config.model.tied_head


def test_megatron_vocabularies_are_padded_for_tensor_parallelism(rows):
    assert (
        request_of(golden(rows, "gpt3_7b_tp4_pp1_memory_speed"))["config"]["model"]["vocab_size"] == 131584
    )
    seven = config_of(request_of(golden(rows, "gpt3_7b_tp1_pp4_memory_speed"))["config"])
    assert (seven.model.vocab_size, seven.parallel.vpp, seven.parallel.zero) == (131200, 8, 1)
    assert not seven.model.tied_head


def test_megatron_kernels_follow_the_kind_of_test(rows):
    resumed = "gpt3_mcore_te_tp1_pp1_resume_torch_dist_dist_optimizer"
    assert kernel_of(golden(rows, resumed)) == "flash"
    assert kernel_of(golden(rows, resumed, "lts_dgxa100_dracooci")) == "eager"
    assert kernel_of(golden(rows, "gpt3_mcore_te_tp1_pp1_dist_optimizer_no_mmap_bin_files")) == "eager"
    assert kernel_of(golden(rows, "gpt3_mcore_tp1_pp4")) == "eager"
    split = config_of(request_of(golden(rows, "gpt3_mcore_te_tp2_pp2_cp2"))["config"])
    assert (split.attention, split.parallel.cp, split.model.dropout) == ("flash", 2, 0.0)


def test_a_gb200_node_has_four(rows):
    resumed = "gpt3_mcore_te_tp1_pp1_resume_torch_dist_dist_optimizer"
    eight = request_of(golden(rows, resumed, "dev_dgx_gb200"))["config"]["parallel"]
    four = request_of(golden(rows, f"{resumed}_1node", "dev_dgx_gb200"))["config"]["parallel"]
    assert (eight["dp"], eight["micro_batches"]) == (8, 1)
    assert (four["dp"], four["micro_batches"]) == (4, 2)


def test_two_figures_of_a_megatron_row(rows, outcomes):
    row = golden(rows, "gpt3_mcore_te_tp2_pp2")
    static, peak = cases_of(outcomes, row.row_id)
    assert (static.metric, peak.metric) == ("static_bytes", "peak_allocated_bytes")
    assert peak.expected == row.mem_value
    assert f"steady allocated {static.expected:.0f}" in row.mem_kind
    (only,) = cases_of(outcomes, golden(rows, "gpt3_mcore_te_tp2_pp2_cross_entropy_loss_fusion").row_id)
    assert only.metric == "static_bytes"
    assert "peak not compared" in only.caveat


def test_ratios_pair_rows_that_differ_in_their_policy(outcomes):
    ratio = next(c for c in cases_of(outcomes, "torchtitan-004") if c.kind == "time_ratio")
    assert ratio.expected == 2162 / 1914
    policy, reference = (r["config"] for r in ratio.requests)
    assert (policy["policy"], reference["policy"]) == (
        {"family": "blocks", "options": {"every_n": 2}},
        {"family": "none", "options": {}},
    )
    assert {**policy, "policy": 0} == {**reference, "policy": 0}
    (layer,) = cases_of(outcomes, "korthikanti2022_layer_times_22b-008")
    assert layer.expected == pytest.approx(27.2 / 19.6)
    assert [r["config"]["model"]["n_layers"] for r in layer.requests] == [4, 2, 4, 2]
    (kept,) = cases_of(outcomes, "korthikanti2022_other_claims-004")
    assert (kept.kind, kept.metric) == ("activation_formula", "saved_bytes")
    assert kept.expected == pytest.approx(0.3)


def test_what_ran_out_of_memory_does_not_fit(outcomes):
    (case,) = cases_of(outcomes, "torchtitan-008")
    assert (case.kind, case.expected, case.capacity_bytes) == ("fits", 0.0, 80 * 2**30)


def test_halves_are_fixed_and_about_equal(rows):
    assert [half_of(f"torchtitan-{i:03}") for i in range(8)] == list("BBAAABBA")
    counts = Counter(half_of(row.row_id) for row in rows)
    assert abs(counts["A"] - counts["B"]) < 100


def test_an_unknown_source_is_bad_input(rows):
    with pytest.raises(UsageError, match="expected one of megatron_lm_golden"):
        outcomes_of(rows, "megatron")


def test_a_lost_row_is_an_error(rows, monkeypatch):
    monkeypatch.setitem(SOURCES, "torchtitan", lambda _: [])
    with pytest.raises(AssertionError, match="torchtitan-000"):
        outcomes_of(rows, "torchtitan")

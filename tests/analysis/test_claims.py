"""Claims are judged by figures: each verdict can come out, and a claim without its cells says so."""

from typing import Any

import pytest
from make_cell import make_cell

from analysis.claims import CLAIMS, judge
from analysis.claims.depth import depth_exponents, judge_depth
from analysis.claims.finding import Judgement, groups
from analysis.claims.memory import judge_length, judge_order_of_magnitude, judge_selective
from analysis.claims.table import claims_sentence
from analysis.claims.work import judge_cheap, judge_one_forward, judge_slowdown
from suite.record import Record
from suite.summary import CellSummary

FULL, NONE = {"family": "full"}, {"family": "none"}
SQRT = {"family": "segments", "n": "sqrt"}
WHOLE = {"family": "full", "early_stop": False}
CORE = {"family": "modules", "targets": ["core_attn"]}


def summary(policy: dict[str, Any], workload: dict[str, Any] | None = None, **figures: Any) -> CellSummary:
    """A healthy cell with these figures; ``blocks`` and ``outside`` are bytes saved in and outside blocks."""
    cell = make_cell(policy=policy, **(workload or {}))
    saved = {
        "saved_in_blocks_bytes": figures.pop("blocks", 0),
        "saved_outside_blocks_bytes": figures.pop("outside", 0),
    }
    memory = Record(
        cell.id,
        cell.workload_id,
        "memory",
        0,
        cell.resolved,
        {},
        {},
        {},
        "ok",
        figures={**figures, **saved},
    )
    rounds = figures.pop("rounds_s", {})
    return CellSummary(
        cell=cell.id,
        workload=cell.workload_id,
        policy=cell.policy_label,
        workload_label=cell.workload_label,
        config=cell.resolved,
        status="ok",
        reason="",
        memory=memory,
        rounds_s=rounds,
        rounds_by_session_s={("one", number): seconds for number, seconds in rounds.items()},
        **figures,
    )


def at_depth(policy: dict[str, Any], depth: int, nbytes: float) -> CellSummary:
    return summary(policy, {"model_n_layers": depth}, activation_bytes=nbytes + 1000, outside=1000)


DEPTHS = (4, 9, 16, 25, 36)


def test_exponents_are_those_of_the_growth_without_the_head() -> None:
    cells = [at_depth(NONE, n, 100 * n) for n in DEPTHS] + [at_depth(SQRT, n, 40 * n**0.5) for n in DEPTHS]
    found = depth_exponents(cells)
    assert found["none"][0] == pytest.approx(1.0)
    assert found["segments(n=sqrt)"][0] == pytest.approx(0.5)
    assert judge_depth(cells).verdict == "holds"


@pytest.mark.parametrize(("exponent", "verdict"), [(0.5, "holds"), (0.8, "in part")])
def test_growth_of_another_kind_is_told(exponent: float, verdict: str) -> None:
    cells = [at_depth(NONE, n, 100 * n) for n in DEPTHS]
    cells += [at_depth(SQRT, n, 40 * n**exponent) for n in DEPTHS]
    assert judge_depth(cells).verdict == verdict


def test_four_depths_are_too_few() -> None:
    cells = [at_depth(p, n, 100 * n) for p in (NONE, SQRT) for n in DEPTHS[:4]]
    assert judge_depth(cells).verdict == "not measured"


@pytest.mark.parametrize(
    ("stop", "whole", "verdict"), [(22, 33.4, "in part"), (33.3, 33.3, "holds"), (20, 25, "not here")]
)
def test_one_more_forward(stop: float, whole: float, verdict: str) -> None:
    cells = [
        summary(FULL, model_flops=100.0, recomputed_flops=stop),
        summary(WHOLE, model_flops=100.0, recomputed_flops=whole),
    ]
    found = judge_one_forward(cells)
    assert found.verdict == verdict
    assert f"{stop:.1f} % with early stop" in found.measured


TIMES = [
    ((1.34, 1.36), "holds"),
    ((1.10, 1.12), "not here"),
    ((1.60, 1.62), "not here"),
    ((1.00, 2.00), "too noisy"),
]


@pytest.mark.parametrize(("ratios", "verdict"), TIMES)
def test_a_slowdown_is_judged_by_its_interval(ratios: tuple[float, float], verdict: str) -> None:
    cells = [
        summary(NONE, rounds_s=dict.fromkeys(range(4), 1.0)),
        summary(FULL, rounds_s={r: ratios[r % 2] for r in range(4)}),
    ]
    assert judge_slowdown(cells).verdict == verdict


def test_a_single_round_says_nothing_about_time() -> None:
    cells = [summary(NONE, rounds_s={0: 1.0}), summary(FULL, rounds_s={0: 1.35})]
    assert judge_slowdown(cells).verdict == "not measured"


@pytest.mark.parametrize(
    ("peak", "kept", "verdict"), [(10, 5, "holds"), (30, 5, "in part"), (30, 20, "not here")]
)
def test_an_order_of_magnitude(peak: float, kept: float, verdict: str) -> None:
    cells = [
        summary(NONE, activation_bytes=100.0, blocks=100),
        summary(FULL, activation_bytes=peak, blocks=kept),
    ]
    assert judge_order_of_magnitude(cells).verdict == verdict


def test_selective_recomputation_needs_scores_to_save() -> None:
    def cells(attention: str, core_saved: float) -> list[CellSummary]:
        workload = {"attention": attention}
        return [
            summary(NONE, workload, saved_bytes=100.0, model_flops=100.0, recomputed_flops=0.0),
            summary(FULL, workload, saved_bytes=10.0, model_flops=100.0, recomputed_flops=25.0),
            summary(CORE, workload, saved_bytes=core_saved, model_flops=100.0, recomputed_flops=4.0),
        ]

    found = judge_selective([*cells("eager", 30.0), *cells("sdpa", 100.0)])
    assert found.verdict == "holds"
    assert "78 % of the saving" in found.measured
    assert "nothing of that is left to save" in found.why
    assert judge_selective(cells("eager", 90.0)).verdict == "not here"


def test_cheap_operators_only() -> None:
    none = summary(NONE, saved_bytes=100.0, model_flops=100.0, recomputed_flops=0.0)
    cheap = summary({"family": "rebuild"}, saved_bytes=60.0, model_flops=100.0, recomputed_flops=0.0)
    dear = summary({"family": "rebuild"}, saved_bytes=60.0, model_flops=100.0, recomputed_flops=5.0)
    assert judge_cheap([none, cheap]).verdict == "holds"
    assert "(40 %)" in judge_cheap([none, cheap]).measured
    assert judge_cheap([none, dear]).verdict == "not here"


def test_the_longest_sequence_on_a_budget() -> None:
    def cells(policy: dict[str, Any], slope: float) -> list[CellSummary]:
        return [summary(policy, {"seq_len": n}, peak_bytes=slope * n) for n in (256, 512, 768, 1024)]

    found = judge_length([*cells(NONE, 2.0), *cells(FULL, 1.0)])
    assert found.verdict == "holds"
    assert "none 512, full 1,024" in found.measured
    assert judge_length([*cells(NONE, 2.0), *cells(FULL, 3.0)]).verdict == "not here"


def test_without_cells_nothing_is_claimed() -> None:
    found = judge([])
    assert {judgement.verdict for _, judgement in found} == {"not measured"}
    assert all(judgement.why for _, judgement in found)
    assert (
        claims_sentence(found)
        == f"Of {len(CLAIMS)} claims about recomputation on this device: 7 not measured."
    )


def test_the_sentence_counts_the_verdicts() -> None:
    found = [
        (CLAIMS[0], Judgement("holds")),
        (CLAIMS[1], Judgement("not here")),
        (CLAIMS[2], Judgement("holds")),
    ]
    assert claims_sentence(found).endswith("2 hold, 1 not here.")


def test_cells_are_grouped_by_all_that_they_share() -> None:
    a, b, other = summary(NONE), summary(FULL), summary(NONE, {"seq_len": 64})
    assert [len(group) for group in groups([a, b, other])] == [2, 1]
    assert [len(group) for group in groups([a, b, other], "seq_len")] == [3]

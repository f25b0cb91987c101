"""The verdict of a cell, from records alone."""

import dataclasses
from typing import Any

import pytest
from make_cell import make_cell
from record_cases import FIGURES, record

from suite.cell import Cell, config_of
from suite.peak import MEASURED, peak_rates
from suite.record import Record
from suite.summary import CellSummary, count_statuses, over_budget, summarise

NONE, FULL = make_cell(), make_cell(policy={"family": "full"})


def _all(cell: Cell, **figures: Any) -> list[Record]:
    made = [record(p, cell=cell) for p in FIGURES]
    return [
        dataclasses.replace(
            r, figures={**r.figures, **{k: v for k, v in figures.items() if k in r.figures}}
        )
        for r in made
    ]


def _one(records: list[Record], cell: Cell, budget: int | None = None) -> CellSummary:
    return summarise(records, budget_bytes=budget)[cell.id]


def test_a_healthy_cell_has_its_headlines() -> None:
    found = _one(_all(FULL), FULL)
    assert (found.status, found.reason) == ("ok", "")
    assert (found.peak_bytes, found.saved_bytes, found.recomputed_flops) == (100, 40, 250)
    assert found.peak_phase == "backward"
    assert found.step_time_s == 0.5
    assert found.mfu_ratio == pytest.approx(1000 / 0.5 / 1e4)
    assert found.hfu_ratio == pytest.approx(1250 / 0.5 / 1e4)
    assert len(found.records) == 4


def test_mfu_has_one_denominator_so_that_it_falls_as_the_step_time_rises() -> None:
    source = f"{MEASURED}fp32 product of 1024 x 1024 matrices on 2 threads"

    def rounds(cell: Cell, step: float, *rates: float) -> list[Record]:
        figures = [{**FIGURES["time"], "step_time_s": step, "peak_flops_per_s": rate} for rate in rates]
        detail = {"peak_flops_source": source}
        return [
            record("time", cell=cell, round_=r, figures=f, detail=detail) for r, f in enumerate(figures)
        ]

    # The slower cell met the slower moments of the machine.
    fast = [record("flops", cell=NONE), *rounds(NONE, 0.5, 1e4, 2e4)]
    slow = [record("flops", cell=FULL), *rounds(FULL, 0.6, 4e3, 5e3)]
    found = summarise([*fast, *slow], budget_bytes=None)
    assert found[NONE.id].mfu_ratio == pytest.approx(1000 / 0.5 / 2e4)
    assert found[FULL.id].mfu_ratio == pytest.approx(1000 / 0.6 / 2e4)
    assert found[FULL.id].peak_flops_source == (
        "the best that 4 rounds of this sweep measured: fp32 product of 1024 x 1024 matrices on 2 threads"
    )
    alone = summarise(slow, budget_bytes=None, rates=peak_rates([*fast, *slow]))
    assert alone[FULL.id] == found[FULL.id]


def test_the_median_is_over_rounds_that_were_ok() -> None:
    rounds = [
        record("time", cell=FULL, round_=r, figures={**FIGURES["time"], "step_time_s": t})
        for r, t in enumerate([1.0, 3.0, 2.0])
    ]
    found = _one([*rounds, record("time", cell=FULL, round_=3, status="timeout")], FULL)
    assert found.step_time_s == 2.0
    assert found.rounds_s == {0: 1.0, 1: 3.0, 2: 2.0}
    assert found.status == "timeout"


def test_a_budget_makes_a_cell_oom_and_says_what_it_needs() -> None:
    records = _all(FULL)
    assert _one(records, FULL, budget=100).status == "ok"
    found = _one(records, FULL, budget=99)
    assert found.status == "oom"
    assert found.reason == "needs 100 B in backward, the budget is 99 B"
    assert over_budget(None, 1) == ""
    assert over_budget(records[0], None) == ""


def test_a_peak_just_above_the_budget_does_not_read_like_the_budget() -> None:
    figures = {**FIGURES["memory"], "peak_bytes": 30 * 2**20 + 20_000}
    needs = over_budget(record("memory", figures=figures), 30 * 2**20)
    assert needs == "needs 30.02 MiB in backward, the budget is 30.00 MiB"


def test_ok_is_proven_by_parity_alone() -> None:
    assert _one(_all(FULL), FULL).proven
    unproven = [r for r in _all(FULL) if r.pass_ != "parity"]
    assert (_one(unproven, FULL).status, _one(unproven, FULL).proven) == ("ok", False)
    assert not _one([*unproven, record("parity", cell=FULL, status="wrong")], FULL).proven
    assert _one([record("memory", cell=NONE)], NONE).proven


def test_a_policy_that_changed_nothing_is_a_noop_only_beside_its_reference() -> None:
    reference = _all(NONE, executed_flops=1000, saved_bytes=70)
    same = _all(FULL, executed_flops=1000, saved_bytes=70)
    assert _one(reference + same, FULL).status == "noop"
    assert "as none" in _one(reference + same, FULL).reason
    assert _one(reference + same, NONE).status == "ok"
    assert _one(same, FULL).status == "ok"
    assert _one(reference + _all(FULL, executed_flops=1000, saved_bytes=69), FULL).status == "ok"
    assert _one(reference + _all(FULL, executed_flops=1001, saved_bytes=70), FULL).status == "ok"


def test_another_workload_is_no_reference() -> None:
    elsewhere = _all(make_cell(seq_len=8), executed_flops=1000, saved_bytes=70)
    assert _one(elsewhere + _all(FULL, executed_flops=1000, saved_bytes=70), FULL).status == "ok"


@pytest.mark.parametrize("status", ["wrong", "crash", "oom", "timeout", "invalid", "unsupported"])
def test_the_worst_record_decides_and_gives_the_reason(status: str) -> None:
    records = [*_all(FULL)[:2], record("parity", cell=FULL, status=status)]
    found = _one(records, FULL)
    assert (found.status, found.reason) == (status, f"{status}!")


def test_statuses_are_counted_worst_first() -> None:
    records = [*_all(NONE), record("memory", cell=FULL, status="crash")]
    found = summarise(records, budget_bytes=None)
    assert list(count_statuses(found).items()) == [("crash", 1), ("ok", 1)]


def test_a_configuration_survives_its_record() -> None:
    import json

    for cell in (FULL, make_cell(policy={"family": "ops", "save": ["mm", "bmm"]})):
        read = config_of(json.loads(json.dumps(cell.resolved)))
        assert Cell(read).id == cell.id
        assert Cell(read).policy_label == cell.policy_label

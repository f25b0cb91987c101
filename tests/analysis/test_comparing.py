"""Groups, baselines, costs and the answer that follows from them."""

import dataclasses

import pytest
import sweep_builder as build

from analysis.answer import answer, cost_text
from analysis.compare import compare, frame
from analysis.detail import thin
from analysis.labels import place_labels
from analysis.load import load_run
from analysis.tables import verdicts
from analysis.views import composition_views, length_views, live_views, pareto_view, round_ticks

MIB = build.MIB


def sweep(tmp_path, records, cells, **manifest):
    build.store(tmp_path, records, build.manifest(cells, **manifest))
    run = load_run(tmp_path)
    return run, compare(run)


def healthy(cell, peak, step, rounds=3, drift=(1.0, 1.3, 0.8), recomputed=1.0):
    timed = [build.time(cell, step * drift[i], i) for i in range(rounds)]
    return [build.memory(cell, peak * MIB, peak * MIB / 2), build.flops(cell, 1e9, recomputed), *timed]


def test_costs_are_paired_ratios_to_the_reference(tmp_path):
    cells = [build.cell("none"), build.cell("full")]
    records = healthy(cells[0], 100, 0.1, recomputed=0.0) + healthy(cells[1], 60, 0.125)
    _, comparison = sweep(tmp_path, records, cells)
    (workload,) = comparison.workloads
    assert workload.baseline_policy == "none"
    assert [row.cost for row in workload.rows] == [1.0, pytest.approx(1.25)]
    assert [row.peak_ratio for row in workload.rows] == [1.0, pytest.approx(0.6)]
    assert all(row.on_front for row in workload.rows)


def test_without_times_of_the_reference_the_fastest_policy_is_named_as_baseline(tmp_path):
    cells = [build.cell("none"), build.cell("full"), build.cell("ops", {"save": "attn"})]
    records = [build.memory(cells[0], 300 * MIB, 9e7)]
    records += healthy(cells[1], 60, 0.12) + healthy(cells[2], 80, 0.1)
    run, comparison = sweep(tmp_path, records, cells, budget_bytes=100 * MIB)
    (workload,) = comparison.workloads
    assert workload.baseline_policy == "ops(save=attn)"
    assert [row.cost for row in workload.rows] == [None, pytest.approx(1.2), 1.0]
    found = answer(workload, run.budget_bytes)
    assert found.sentence == (
        "At 1,024 tokens the cheapest policy that fits 100 MiB is ops(save=attn): peak 80.0 MiB, "
        "step time 100 ms, gradients not compared. The reference, none, does not fit (300 MiB). "
        "Next best: full (60.0 MiB, +20.0 % [20.0, 20.0] step time against ops(save=attn), "
        "gradients not compared)."
    )


def in_session(records, name):
    return [
        dataclasses.replace(r, detail={**r.detail, "session": name}) if r.pass_ == "time" else r
        for r in records
    ]


def test_a_reference_timed_in_another_session_prices_nothing(tmp_path):
    cells = [build.cell("none"), build.cell("full"), build.cell("ops", {"save": "attn"})]
    records = in_session(healthy(cells[0], 90, 9.0), "monday")
    records += in_session(healthy(cells[1], 60, 0.12) + healthy(cells[2], 80, 0.1), "tuesday")
    run, comparison = sweep(tmp_path, records, cells, budget_bytes=100 * MIB)
    (workload,) = comparison.workloads
    assert workload.baseline_policy == "ops(save=attn)"
    assert [row.cost for row in workload.rows] == [None, pytest.approx(1.2), 1.0]
    # One policy in a session of its own is said to be so, and priced by nothing.
    records[-3:] = in_session(records[-3:], "monday")
    run, comparison = sweep(tmp_path, records, cells, budget_bytes=100 * MIB)
    (workload,) = comparison.workloads
    assert workload.baseline_policy == "none"
    assert workload.rows[1].cost is None
    assert cost_text(workload.rows[1], workload) == "step time not measured beside none"
    table = verdicts(comparison, run.reference)
    assert "no round in one session with none" in [e.note for e in table.lines[1].entries]


def test_without_any_time_the_executed_flops_are_the_cost(tmp_path):
    cells = [build.cell("none"), build.cell("full")]
    records = [
        build.memory(cells[0], 90 * MIB, 5e7),
        build.flops(cells[0], 1e9, 0),
        build.memory(cells[1], 40 * MIB, 1e7),
        build.flops(cells[1], 1e9, 2.5e8),
    ]
    run, comparison = sweep(tmp_path, records, cells, budget_bytes=50 * MIB)
    (workload,) = comparison.workloads
    assert workload.cost_kind == "flops"
    assert workload.rows[1].cost == pytest.approx(1.25)
    sentence = answer(workload, run.budget_bytes).sentence
    assert "is full: peak 40.0 MiB, +25.0 % executed FLOPs against none (no time measured)" in sentence


def test_a_reference_that_fits_needs_no_recomputation(tmp_path):
    cells = [build.cell("none"), build.cell("full")]
    records = healthy(cells[0], 90, 0.1, recomputed=0.0) + healthy(cells[1], 50, 0.13)
    run, comparison = sweep(tmp_path, records, cells, budget_bytes=100 * MIB)
    found = answer(comparison.workloads[0], run.budget_bytes)
    assert found.best is not None
    assert found.best.summary.policy == "none"
    assert found.sentence.startswith(
        "At 1,024 tokens none itself fits 100 MiB, so nothing needs recomputing"
    )
    assert "Next best: full (50.0 MiB, +30.0 %" in found.sentence


def test_where_nothing_fits_the_lowest_peak_is_told(tmp_path):
    cells = [build.cell("none"), build.cell("full")]
    records = [build.memory(cells[0], 90 * MIB, 5e7), build.memory(cells[1], 40 * MIB, 1e7)]
    run, comparison = sweep(tmp_path, records, cells, budget_bytes=30 * MIB)
    found = answer(comparison.workloads[0], run.budget_bytes)
    assert found.best is None
    assert found.sentence == (
        "At 1,024 tokens no policy measured fits 30.0 MiB; the lowest peak is 40.0 MiB, with full."
    )


def test_without_a_budget_the_lowest_peak_is_the_answer(tmp_path):
    cells = [build.cell("none"), build.cell("full"), build.cell("ops", {"save": "attn"})]
    records = healthy(cells[0], 90, 0.1, recomputed=0.0)
    records += healthy(cells[1], 50, 0.13) + healthy(cells[2], 70, 0.11)
    _, comparison = sweep(tmp_path, records, cells)
    sentence = answer(comparison.workloads[0], None).sentence
    assert sentence.startswith(
        "At 1,024 tokens full has the lowest peak, 50.0 MiB (\N{MINUS SIGN}44.4 % against the reference)"
    )
    assert "Cheapest on the frontier: ops(save=attn) (70.0 MiB, +10.0 %" in sentence


def test_wrong_and_idle_cells_are_neither_answers_nor_on_the_frontier(tmp_path):
    none, wrong, idle = build.cell("none"), build.cell("full"), build.cell("blocks")
    records = healthy(none, 90, 0.1, recomputed=0.0) + healthy(wrong, 20, 0.05)
    records += [build.record(wrong, "parity", "wrong")]
    records += healthy(idle, 90, 0.02, recomputed=0.0)
    run, comparison = sweep(tmp_path, records, [none, wrong, idle], budget_bytes=100 * MIB)
    (workload,) = comparison.workloads
    assert [row.summary.status for row in workload.rows] == ["ok", "wrong", "noop"]
    assert [row.on_front for row in workload.rows] == [True, False, False]
    found = answer(workload, run.budget_bytes)
    assert (found.best, found.fallback) == (workload.rows[0], None)


def test_groups_are_named_by_what_varies_and_told_apart_by_the_rest(tmp_path):
    cells = [
        build.cell(attention="eager"),
        build.cell(attention="sdpa"),
        build.cell(attention="sdpa", seed=1),
        build.cell(attention="sdpa", seq_len=2048),
    ]
    _, comparison = sweep(tmp_path, [], cells)
    assert comparison.varying == ("Attention",)
    assert list(comparison.groups()) == ["eager", "sdpa, seed=0", "sdpa, seed=1"]
    assert [w.seq_len for w in comparison.groups()["sdpa, seed=0"]] == [1024, 2048]


def test_a_model_built_for_its_length_stays_in_one_group(tmp_path):
    cells = [
        build.cell(seq_len=n, model=dataclasses.replace(build.MODEL, max_seq_len=n)) for n in (2048, 512)
    ]
    _, comparison = sweep(tmp_path, [], cells)
    assert {label: [w.seq_len for w in ws] for label, ws in comparison.groups().items()} == {
        "": [512, 2048]
    }


def test_views_place_every_cell_somewhere(tmp_path):
    store = build.long_sweep(tmp_path)
    run = load_run(store.root)
    comparison = compare(run)
    for workload in comparison.workloads:
        view = pareto_view(workload, run.budget_bytes)
        assert view is not None
        placed = {row.summary.cell for row in view.priced + view.strip + view.unplaced}
        assert placed == {row.summary.cell for row in workload.rows}
        assert {row.summary.status for row in view.priced} <= {"ok", "wrong"}
    strip = pareto_view(comparison.workloads[3], run.budget_bytes)
    assert strip is not None
    assert strip.strip_label == "no time: out of memory"
    assert len(strip.strip) == 6
    (lengths,) = length_views(comparison, run.budget_bytes)
    assert (lengths.group, lengths.lengths) == ("sdpa", (512, 1024, 2048, 4096))
    assert [row.summary.status for row in lengths.lines["none"]] == ["ok", "ok", "oom", "oom"]
    views = composition_views(comparison, run.budget_bytes)
    assert [(v.workload.label, len(v.bars)) for v in views] == [
        ("sdpa, 4,096 tokens", 9),
        ("eager, 1,024 tokens", 9),
    ]
    found = answer(views[0].workload, run.budget_bytes)
    assert [v.row.summary.policy for v in live_views(views[0], found)] == [
        "none",
        "ops(save=attn)",
        "full",
        "segments(n=sqrt)",
    ]


def test_the_frame_has_a_row_per_cell_and_units_in_its_columns(tmp_path):
    run = load_run(build.long_sweep(tmp_path).root)
    table = frame(compare(run))
    assert len(table) == len(run.cells) == 50
    measured = table[(table.policy == "full") & (table.seq_len == 512)].iloc[0]
    assert measured.peak_bytes == (24 + 0.16 * 45 + 3) * MIB
    assert 1.2 < measured.step_time_ratio < 1.35
    assert measured.baseline == "none"


def test_thinning_keeps_extremes_ends_and_changes_of_phase():
    series = [
        (float(i), float((i * 7919) % 1009), "forward" if i < 4000 else "backward") for i in range(9000)
    ]
    series[6001] = (6001.0, 1e6, "backward")
    kept = thin(series, 400)
    assert len(kept) < 450
    assert kept[0] == series[0]
    assert kept[-1] == series[-1]
    assert series[6001] in kept
    assert series[4000] in kept
    assert kept == sorted(kept)
    assert thin(series[:100], 400) == series[:100]


def test_ticks_are_round_and_cover_the_range():
    assert round_ticks(40, 410) == [50, 100, 200, 500]
    assert round_ticks(7, 7) == [5, 10]


def test_labels_avoid_each_other_and_the_lines():
    points = [(200.0, 100.0), (205.0, 100.0), (210.0, 100.0)]
    placed = place_labels(points, ["first", "second", "third"], (430, 250))
    assert len({(p.dx, p.dy, p.align) for p in placed}) == 3
    (free,) = place_labels([(200.0, 100.0)], ["name"], (430, 250))
    assert (free.align, free.dy) == ("left", 0)
    (dodging,) = place_labels([(200.0, 100.0)], ["name"], (430, 250), [(204, 90, 400, 110)])
    assert dodging.align != "left" or dodging.dy != 0
    (inside,) = place_labels([(428.0, 100.0)], ["a long name"], (430, 250))
    assert inside.align == "right"

"""Sweeps of every shape render: empty, partial, one cell, one round, all out of memory, large."""

import dataclasses

import pytest
import sweep_builder as build
from page_reader import Page

from analysis.report import write_report

MIB = build.MIB


def render(tmp_path, records, cells, **manifest):
    store = build.store(tmp_path / "run", records, build.manifest(cells, **manifest))
    index = write_report(store.root, tmp_path / "out")
    return Page(index.read_text()), (tmp_path / "out" / "report.md").read_text(), tmp_path / "out"


def test_a_sweep_without_any_record(tmp_path):
    cells = [build.cell("none"), build.cell("full")]
    page, text, out = render(tmp_path, [], cells, state="running")
    assert "still running, or was killed" in page.text
    assert "At 1,024 tokens there is no healthy cell to choose from (not measured)." in page.text
    assert "still running, or was killed" in text
    assert not list(out.glob("*.png"))
    assert ".png" not in text


def test_a_sweep_without_cells(tmp_path):
    page, _, _ = render(tmp_path, [], [])
    assert "This sweep has no cells." in page.text


@pytest.mark.parametrize(
    ("state", "words"), [("interrupted", "was interrupted"), ("stopped", "after a failure")]
)
def test_a_partial_sweep_says_so(tmp_path, state, words):
    cell = build.cell()
    page, text, _ = render(tmp_path, [build.memory(cell, 5e7, 1e7)], [cell], state=state)
    assert words in page.text
    assert words in text
    assert "not yet: flops, parity, time (0 of 5 rounds)" in page.text


def test_a_single_cell_with_one_round(tmp_path):
    cell = build.cell()
    records = [build.memory(cell, 80 * MIB, 1e7), build.flops(cell, 1e9, 0), build.time(cell, 0.1)]
    page, _, _ = render(tmp_path, records, [cell], rounds=1, budget_bytes=100 * MIB)
    assert "At 1,024 tokens none itself fits 100 MiB" in page.text
    assert "No other policy measured fits." in page.text
    assert "Fewer than two rounds were timed" in page.text
    assert "Only one sequence length has a peak." in page.text


def test_one_round_of_two_policies_has_a_ratio_without_an_interval(tmp_path):
    cells = [build.cell("none"), build.cell("full")]
    records = [
        r for c in cells for r in (build.memory(c, 5e7, 1e7), build.time(c, 0.1 if c is cells[0] else 0.12))
    ]
    page, _, _ = render(tmp_path, records, cells, rounds=1)
    assert "+20.0 % (1 round: no interval)" in page.text
    assert "NaN" not in str(page.figures["pareto-0"])


def test_no_reference_cell_at_all(tmp_path):
    cells = [build.cell("full"), build.cell("blocks", {"every_n": 2})]
    records = []
    for cell, peak, step in zip(cells, (50, 70), (0.12, 0.1), strict=True):
        records += [build.memory(cell, peak * MIB, 1e7), *(build.time(cell, step, i) for i in range(3))]
    page, _, _ = render(tmp_path, records, cells, budget_bytes=100 * MIB)
    assert "the cheapest policy that fits 100 MiB is blocks(every_n=2)" in page.text
    assert "vs blocks(every_n=2)" in page.text
    assert page.figures["pareto-0"]["layout"]["yaxis"]["title"]["text"] == (
        "step time relative to blocks(every_n=2)"
    )


def test_every_cell_out_of_memory(tmp_path):
    cells = [build.cell("none"), build.cell("full")]
    records = [build.memory(cells[0], 90 * MIB, 5e7), build.record(cells[1], "memory", "oom")]
    page, text, _ = render(tmp_path, records, cells, budget_bytes=30 * MIB)
    assert "no policy measured fits 30.0 MiB; the lowest peak is 90.0 MiB, with none." in page.text
    assert "Not drawn, no peak known: full (out of memory)." in page.text
    assert text.count("out of memory") >= 2
    assert page.rows["verdicts"][1:] == ["oom", "oom"]


def test_detail_of_an_unexpected_shape_is_left_out(tmp_path):
    cell = build.cell()
    found = build.memory(cell, 80 * MIB, 1e7)
    found.detail.update(
        top_tensors="many",
        phase_peaks=[1, 2],
        peak_composition={"activation": "much"},
        live_bytes=[[1], 2, ["a", "b", 3]],
    )
    page, _, _ = render(tmp_path, [found], [cell])
    assert "No memory pass has explained a peak yet." in page.text
    assert "No memory pass has recorded a series." in page.text


def test_several_models_batches_and_lengths(tmp_path):
    other = dataclasses.replace(build.MODEL, name="gpt_mini", family="gpt")
    cells, records = [], []
    for model, batch in ((build.MODEL, 1), (other, 4)):
        for length in range(128, 128 * 8, 128):
            for n in range(10):
                cell = build.cell("blocks", {"every_n": n}, seq_len=length, batch_size=batch, model=model)
                cells.append(cell)
                if n % 5 == 0:
                    found = build.memory(cell, (30 + n + length / 64) * MIB, 1e7)
                    records += [found, *(build.time(cell, 0.1 - n / 1000, i) for i in range(2))]
    page, _, _ = render(tmp_path, records, cells, rounds=2)
    assert len(page.tables["verdicts"]) == 1 + 140
    assert page.tables["verdicts"][0][1:3] == ["Model", "Batch"]
    assert len(page.tables["answers"]) == 1 + 14
    assert page.tables["answers"][1][0] == "llama_mini, batch 1, 128 tokens"
    assert len([name for name in page.figures if name.startswith("pareto-")]) == 14
    assert len([name for name in page.figures if name.startswith("length-")]) == 2
    assert len([name for name in page.figures if name.startswith("noise-")]) == 12
    assert "2 further workloads are in the table only." in page.text

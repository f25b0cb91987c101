import io
from pathlib import Path

import pytest
from runner_cases import NotingTracker, make_cell
from test_schedule import record_of

from runners.closing import exit_code, print_closing
from suite.paired import step_time_ratio
from suite.summary import summarise

REFERENCE, CELL = make_cell("none"), make_cell("ok")


def measured(cell, steps, status="ok", proven=True):
    memory, flops = record_of(cell, "memory", 0, status, peak=3e6), record_of(cell, "flops", 0)
    memory.figures.update(saved_bytes=1e6)
    memory.detail["peak_phase"] = "backward"
    flops.figures.update(model_flops=3e9, executed_flops=4e9 + steps[0], recomputed_flops=1e9)
    times = [record_of(cell, "time", r) for r in range(len(steps))]
    for record, step in zip(times, steps, strict=True):
        record.figures.update(step_time_s=step, tokens_per_s=100.0)
    return [memory, flops, *([record_of(cell, "parity", 0)] if proven else []), *times]


def summaries_of(*groups):
    records = [record for group in groups for record in group]
    return summarise(records, budget_bytes=None)


def said(summaries, page=None):
    out = io.StringIO()
    print_closing(
        list(summaries.values()),
        reference="none",
        root=Path("runs/night"),
        page=page,
        tracker=NotingTracker(),
        out=out,
    )
    return out.getvalue()


def test_the_ratio_is_the_one_of_the_report_with_its_interval():
    found = summaries_of(measured(REFERENCE, [1.0, 2.0, 10.0]), measured(CELL, [2.0, 3.0]))
    expected = step_time_ratio(found[CELL.id], found[REFERENCE.id])
    assert expected.estimate == pytest.approx(3.0**0.5)
    assert f"median of 2 rounds, 100 tokens/s, {expected.text} against none" in said(found)
    found |= summaries_of(measured(make_cell("ok", seq_len=8), [1.0]))
    rows = [line for line in said(found).splitlines() if line.startswith("  ")][:4]
    assert rows[0].split()[-4:-1] == ["step", "vs", "none"]
    assert [expected.brief in row for row in rows] == [False, False, False, True]
    assert rows[2].split()[-3:] == ["reference", "1", "G"]


def test_rounds_of_another_session_make_no_ratio():
    groups = [measured(REFERENCE, [1.0, 1.0]), measured(CELL, [9.0, 2.0])]
    for records, sessions in zip(groups, (("a", "b"), ("b", "b")), strict=True):
        for record, session in zip(records[-2:], sessions, strict=True):
            record.detail["session"] = session
    assert "+100.0 % (1 round: no interval) against none" in said(summaries_of(*groups))
    groups[0][-1].detail["session"] = "a"
    assert "against none" not in said(summaries_of(*groups))


def test_one_cell_beside_its_reference_is_answered_in_lines():
    text = said(summaries_of(measured(REFERENCE, [1.0]), measured(CELL, [2.0])), Path("r/index.html"))
    assert text == (
        "\n"
        "policy    scenario(do=ok)\n"
        "workload  tiny s=16 b=1 fp32 sdpa adamw-foreach cpu\n"
        "status    ok\n"
        "peak      2.9 MiB in backward (none: 2.9 MiB)\n"
        "saved     977 KiB for backward (none: 977 KiB)\n"
        "executed  4 GFLOP a step, of which 1 GFLOP recomputed\n"
        "step      2 s, 100 tokens/s, +100.0 % (1 round: no interval) against none\n"
        "\n"
        "records  runs/night/records\n"
        "report   r/index.html\n"
        "tracking nowhere\n"
        "         look: true\n"
    )


def test_more_cells_make_a_table_per_workload_sorted_by_length():
    longer = make_cell("ok", seq_len=8)
    text = said(
        summaries_of(
            measured(REFERENCE, [1.0]),
            measured(CELL, [1.5]),
            measured(longer, [1.0], status="oom"),
        )
    )
    rows = [line.split() for line in text.splitlines() if line.startswith("  ")]
    assert [row[:3] for row in rows[1:4]] == [
        ["scenario(do=ok)", "8", "oom"],
        ["none", "16", "ok"],
        ["scenario(do=ok)", "16", "ok"],
    ]
    assert rows[3][-3:] == ["%", "1", "G"]
    assert "oom: scenario(do=ok), tiny s=8 b=1 fp32 sdpa adamw-foreach cpu: x\n" in text
    assert "3 cells: 1 oom, 2 ok\n" in text


def test_ok_without_parity_is_not_shown_as_proven():
    bare, wrong = measured(CELL, [2.0], proven=False), measured(make_cell("ok", seq_len=8), [1.0])
    assert "status    ok, gradients not compared\n" in said(summaries_of(measured(REFERENCE, [1.0]), bare))
    text = said(summaries_of(measured(REFERENCE, [1.0]), bare, wrong))
    rows = [line.split() for line in text.splitlines() if line.startswith("  ")]
    assert [row[2] for row in rows[1:4]] == [
        "ok",
        "ok",
        "ok*",
    ]
    assert "* gradients not compared: no parity pass\n3 cells: 3 ok (1 of them without parity)\n" in text


def test_very_many_cells_are_only_counted():
    cells = [make_cell("ok", seq_len=8 * n) for n in range(1, 100)]
    text = said(summaries_of(*(measured(cell, [1.0]) for cell in cells)))
    assert "99 cells: 99 ok" in text
    assert len(text.splitlines()) < 8


@pytest.mark.parametrize(
    ("statuses", "state", "code"),
    [
        (("ok", "oom"), "finished", 0),
        (("ok", "unsupported"), "finished", 0),
        (("ok", "crash"), "finished", 5),
        (("ok", "wrong"), "finished", 5),
        (("ok", "timeout"), "finished", 5),
        (("ok", "invalid"), "finished", 5),
        (("ok",), "stopped", 5),
        (("ok", "crash"), "interrupted", 130),
        (("ok", "ok"), "interrupted", 130),
    ],
)
def test_exit_codes(statuses, state, code):
    cells = (REFERENCE, make_cell("hang"))
    groups = (measured(c, [1.0 + i], s) for i, (c, s) in enumerate(zip(cells, statuses, strict=False)))
    assert exit_code(summaries_of(*groups), 2, state) == code

import io

import pytest
from rich.console import Console
from runner_cases import make_cell
from test_schedule import record_of

from runners.live import LiveProgress
from runners.progress import Board, Progress, new_rows, watched
from runners.schedule import cell_keys
from runners.text_table import TextTable
from suite.record import RecordKey
from suite.summary import summarise

CELLS = [make_cell("none"), make_cell("ok", seq_len=1024), make_cell("device_oom")]


def new_board(cells=CELLS, left=75.0):
    pending = {key for cell in cells for key in cell_keys(cell, ("memory", "time"), 3)}
    return Board("night", 3, new_rows(cells), pending, lambda: left)


def finish(progress, cell, name, round_=0, status="ok", **figures):
    record = record_of(cell, name, round_, status)
    record.figures.update(figures)
    progress.started(record.key, "cpu")
    progress.board.pending.discard(record.key)
    progress.recorded(record.key, record)
    return record


def drive(progress):
    """One cell in its last round, one finished as oom, one running."""
    finish(progress, CELLS[0], "memory", peak_bytes=3 * 2**20)
    finish(progress, CELLS[0], "time", 2, step_time_s=0.0123)
    oom = finish(progress, CELLS[2], "memory", status="oom")
    progress.completed(summarise([oom], budget_bytes=None)[CELLS[2].id])
    progress.started(RecordKey(CELLS[1].id, "time", 1), "cuda:3")


def test_plain_lines_tell_each_pass_and_the_time_left():
    out = io.StringIO()
    with Progress(new_board(), out) as progress:
        drive(progress)
        progress.note("a note")
    lines = out.getvalue().splitlines()
    assert [line.partition(" in ")[0] for line in lines] == [
        "[ 1/12] ok          none, tiny s=16 b=1 fp32 sdpa adamw-foreach cpu: memory: peak 3.0 MiB",
        "[ 2/12] ok          none, tiny s=16 b=1 fp32 sdpa adamw-foreach cpu: time 3/3: 12.3 ms a step",
        "[ 3/12] oom         scenario(do=device_oom), tiny s=16 b=1 fp32 sdpa adamw-foreach cpu: memory: x",
        "a note",
    ]
    assert all("(about 75 s left)" in line for line in lines[:3])


def test_a_pass_over_the_budget_is_oom_in_its_only_line():
    out = io.StringIO()
    board = new_board()
    board.budget_bytes = 1024
    progress = Progress(board, out)
    record = finish(progress, CELLS[0], "memory", peak_bytes=2048.0)
    progress.completed(summarise([record], budget_bytes=1024)[CELLS[0].id])
    (line,) = out.getvalue().splitlines()
    assert line.startswith("[ 1/12] oom         none, tiny s=16")
    assert ": memory: needs 2.0 KiB in step, the budget is 1.0 KiB in " in line


def test_a_verdict_that_no_pass_has_said_gets_its_own_line():
    out = io.StringIO()
    progress = Progress(new_board(), out)
    record = finish(progress, CELLS[0], "memory", peak_bytes=2048.0)
    record.detail["peak_phase"] = "backward"
    progress.completed(summarise([record], budget_bytes=1024)[CELLS[0].id])
    assert out.getvalue().splitlines()[-1] == (
        "    none, tiny s=16 b=1 fp32 sdpa adamw-foreach cpu is oom: "
        "needs 2.0 KiB in backward, the budget is 1.0 KiB"
    )


@pytest.mark.parametrize("width", [80, 160])
def test_the_live_table_fits_and_loses_no_figure(width):
    console = Console(width=width, height=24, record=True, file=io.StringIO(), force_terminal=True)
    progress = LiveProgress(new_board(), console)
    with progress:
        drive(progress)
        progress.tick()
        progress.note("finishing")
    console.print(progress.render())
    text = console.export_text()
    picture = text[text.rindex("night") :].splitlines()
    assert max(map(len, picture)) <= width
    assert picture[0].split() == ["night", "tiny", "b=1", "fp32", "sdpa", "adamw-foreach", "cpu"]
    assert picture[1].split() == ["policy", "workload", "status", "peak", "step"]
    assert picture[2].split() == ["none", "s=16", "·", "3.0", "MiB", "12.3", "ms"]
    assert picture[3].split() == ["scenario(do=ok)", "s=1024", "▸", "time", "2/3", "cuda:3"]
    assert picture[4].split() == ["scenario(do=device_oom)", "s=16", "oom"]
    assert any("3/12 passes" in line and "about 75 s left" in line for line in picture)
    assert any(line.strip() == "1 oom" for line in picture)
    assert "finishing" in text


def test_a_long_sweep_shows_what_runs_and_how_much_more_there_is():
    cells = [make_cell("ok", seq_len=16 * n) for n in range(1, 101)]
    console = Console(width=80, height=24, record=True, file=io.StringIO())
    progress = LiveProgress(new_board(cells), console)
    progress.board.rows[cells[60].id].running = "memory"
    console.print(progress.render())
    text = console.export_text()
    assert len(text.splitlines()) <= 24
    assert f"s={16 * 61} " in text
    assert "▸ memory" in text
    assert "… and 82 more cells" in text


def test_rich_is_used_only_where_somebody_looks_and_it_is_installed(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert watched(terminal)
    assert not watched(io.StringIO())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not watched(terminal)
    monkeypatch.undo()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    assert not watched(terminal)


def test_a_narrow_terminal_goes_without_spare_columns_and_keeps_names_and_ratios(monkeypatch):
    headers = ("policy", "seq_len", "status", "peak", "saved", "step", "step vs none", "recomputed")
    row = ["segments(n=sqrt)", "512", "ok", "9.6 MiB", "598 KiB", "201 ms", "+27.2 % [25.9, 28.5]", "130 M"]
    monkeypatch.setenv("TERM", "xterm")
    shown = {}
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        terminal = io.StringIO()
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        TextTable("night", headers, [row], spare=("recomputed", "saved")).print(terminal)
        shown[width] = terminal.getvalue()
    for text in shown.values():
        assert all(word in text for word in ("segments(n=sqrt)", "+27.2 % [25.9, 28.5]", "201 ms"))
    assert "recomputed" not in shown[80]
    assert "130 M" in shown[120]

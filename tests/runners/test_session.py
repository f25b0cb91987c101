"""Whole sessions with real children: order, resume, retry, failures, and what is said at the end."""

import json
import time

import pytest
from runner_cases import NotingTracker, make_cell

from suite.config.schema import LimitsConfig, TrainerConfig
from suite.errors import UsageError
from suite.record import RecordKey
from suite.store import RecordStore

SINGLES = [("memory", 0), ("flops", 0), ("parity", 0)]
ALL = [*SINGLES, ("time", 0), ("time", 1)]


def passes_of(sweep, cell):
    return [(name, round_) for id_, name, round_ in sweep.executions() if id_ == cell.id]


def test_a_sweep_runs_every_pass_once_and_says_where_things_are(sweep, capsys):
    cells = [make_cell("ok", peak=500), make_cell("none")]
    tracker = NotingTracker()
    assert sweep.run(cells, tracker=tracker) == 0
    assert [passes_of(sweep, cell) for cell in cells] == [ALL, ALL]
    assert sweep.executions()[0][0] == cells[1].id, "the reference comes first"
    assert tracker.calls == ["open", "cell", "cell", "close"]
    assert sorted(tracker.cells) == [("none", "ok"), ("scenario(do=ok, peak=500)", "ok")]
    assert tracker.manifest["state"] == sweep.store.read_manifest()["state"] == "finished"
    assert sweep.reported == [sweep.store.root]
    said = capsys.readouterr().out
    for text in (
        "[10/10] ok",
        "time 2/2: 1 s a step",
        f"records  {sweep.store.root / 'records'}",
        f"report   {sweep.runs / 'reports' / 'index.html'}",
        "tracking nowhere\n         look: true\n",
        "status    ok",
        "step      1 s, median of 2 rounds, 1 tokens/s, +0.0 % [0.0, 0.0] against none",
    ):
        assert text in said


def test_a_second_start_measures_nothing_and_mirrors_what_is_there(sweep):
    cells = [make_cell("none"), make_cell("ok")]
    sweep.run(cells)
    before = {path: path.read_bytes() for path in sweep.store.root.glob("records/*")}
    tracker = NotingTracker()
    assert sweep.run(cells, tracker=tracker) == 0
    assert {path: path.read_bytes() for path in sweep.store.root.glob("records/*")} == before
    assert len(sweep.executions()) == 10
    assert sorted(name for name, _ in tracker.cells) == ["none", "scenario(do=ok)"]


def test_more_rounds_and_cells_run_only_what_is_missing(sweep):
    sweep.run([make_cell("none")])
    assert sweep.run([make_cell("none"), make_cell("ok")], rounds=3) == 0
    assert passes_of(sweep, make_cell("none")) == [*ALL, ("time", 2)]
    assert passes_of(sweep, make_cell("ok")) == [*ALL, ("time", 2)]


def test_a_cell_over_budget_is_oom_until_the_budget_is_raised(sweep, capsys):
    cell = make_cell("ok", peak=3000)
    tracker = NotingTracker()
    assert sweep.run([make_cell("none"), cell], budget_bytes=2000, tracker=tracker) == 0
    assert passes_of(sweep, cell) == [("memory", 0)]
    assert ("scenario(do=ok, peak=3000)", "oom") in tracker.cells
    assert "status    oom: needs 2.9 KiB in step, the budget is 2.0 KiB" in capsys.readouterr().out
    assert sweep.run([make_cell("none"), cell], budget_bytes=4000) == 0
    assert passes_of(sweep, cell) == ALL
    # Two rounds of the reference, of another time of day, are no evidence about this cell.
    again = "measuring 2 rounds of none again: only rounds of one session can be compared"
    said = capsys.readouterr().out
    assert again in said
    assert "[6/6] ok" in said
    assert passes_of(sweep, make_cell("none")) == [*ALL, *ALL[3:]]
    rounds = [r for r in sweep.store.records() if r.pass_ == "time"]
    assert len({r.session for r in rounds}) == 1
    assert rounds[0].session > ""
    assert sweep.run([make_cell("none"), cell], budget_bytes=4000) == 0
    assert passes_of(sweep, cell) == ALL


def test_bad_records_are_redone_only_when_named(sweep):
    cells = [make_cell("wrong", at="parity"), make_cell("unsupported")]
    assert sweep.run(cells) == 5
    assert passes_of(sweep, cells[0]) == SINGLES
    sweep.run(cells)
    assert len(sweep.executions()) == 4
    sweep.run(cells, retry=("crash", "oom"))
    assert len(sweep.executions()) == 4
    sweep.run(cells, retry=("wrong",))
    assert passes_of(sweep, cells[0]) == [*SINGLES, ("parity", 0)]
    sweep.run(cells, retry=("all",))
    assert passes_of(sweep, cells[0]) == [*SINGLES, ("parity", 0), *SINGLES]
    assert len(passes_of(sweep, cells[1])) == 2


def test_a_repeated_crash_is_not_taken_for_the_earlier_success(sweep):
    cell = make_cell("exit_silently", at="memory")
    key = RecordKey(cell.id, "memory", 0)
    sweep.run([cell])
    crashed = sweep.store.read(key)
    good = {**json.loads(crashed.to_json()), "status": "ok", "error": None}
    good["figures"] = {"peak_bytes": 1, "static_bytes": 1, "activation_bytes": 1, "saved_bytes": 1}
    sweep.store.record_path(key).write_text(json.dumps(good))
    sweep.run([cell], retry=("ok",), passes=("memory",))
    assert sweep.status(cell) == "crash"


def test_a_record_that_does_not_validate_is_announced_and_measured_again(sweep, capsys):
    cell = make_cell("ok")
    sweep.run([cell], passes=("memory",))
    sweep.store.record_path(RecordKey(cell.id, "memory", 0)).write_text('{"status": "ok"')
    capsys.readouterr()
    assert sweep.run([cell], passes=("memory",)) == 0
    said = capsys.readouterr().out.splitlines()[0]
    assert said.startswith("warning: no record, so what it should hold counts as not measured: ")
    assert f"{cell.id}-memory-000.json: not JSON" in said
    assert passes_of(sweep, cell) == [("memory", 0)] * 2
    assert sweep.status(cell) == "ok"


def test_refused_cells_are_recorded_and_never_started(sweep):
    cells = [make_cell("none"), make_cell("ok")]
    tracker = NotingTracker()
    refused = {cells[1].id: "flash attention needs bf16"}
    assert sweep.run(cells, refused=refused, tracker=tracker) == 0
    assert passes_of(sweep, cells[1]) == []
    record = sweep.store.read(RecordKey(cells[1].id, "memory", 0))
    assert (record.status, record.error["message"]) == ("unsupported", "flash attention needs bf16")
    assert tracker.cells[0] == ("scenario(do=ok)", "unsupported")


@pytest.mark.parametrize(
    ("change", "ran"), [({"on_failure": "stop"}, 1), ({"max_failures": 2}, 2), ({}, 3)]
)
def test_failures_stop_a_session_when_asked(sweep, change, ran):
    cells = [make_cell("value_error"), make_cell("abort"), make_cell("ok")]
    assert sweep.run(cells, passes=("memory",), **change) == 5
    assert len(sweep.executions()) == ran
    assert sweep.store.read_manifest()["state"] == ("stopped" if change else "finished")


def test_oom_and_unsupported_are_results_and_not_failures(sweep):
    cells = [make_cell("device_oom"), make_cell("unsupported"), make_cell("ok")]
    assert sweep.run(cells, passes=("memory",), on_failure="stop") == 0


def test_a_failing_report_or_tracker_is_one_line_and_loses_nothing(sweep, capsys):
    def report(root):
        raise RuntimeError("no fonts\nat all")

    tracker = NotingTracker(failing=("cell", "close"))
    assert sweep.run([make_cell("ok")], tracker=tracker, report=report) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")]
    assert lines == [
        "warning: tracking failed: ConnectionError: cell refused",
        "warning: the report failed: RuntimeError: no fonts",
        "warning: tracking failed: ConnectionError: close refused",
    ]
    assert len(sweep.store.records()) == 5


def test_a_tracker_that_cannot_be_opened_leaves_the_sweep_untouched(sweep):
    with pytest.raises(ConnectionError):
        sweep.run([make_cell("ok")], tracker=NotingTracker(failing=("open",)))
    assert sweep.executions() == []
    assert sweep.store.read_manifest() is None


def test_another_protocol_is_refused_before_anything_runs(sweep):
    cell = make_cell("ok")
    sweep.run([cell], passes=("memory",))
    other = TrainerConfig(steps=7)
    with pytest.raises(UsageError, match=r"trainer\.steps: 5 → 7"):
        sweep.run([cell], trainer=other)
    assert len(sweep.executions()) == 1
    assert sweep.run([cell], passes=("memory", "flops"), trainer=other, adopt=True) == 0
    assert passes_of(sweep, cell) == [("memory", 0), ("flops", 0)]


def test_waiting_takes_no_processor_time(sweep):
    before = time.process_time()
    assert sweep.run([make_cell("slow", seconds=3)], passes=("memory",)) == 0
    assert time.process_time() - before < 1.0, "a parent that spins would have used about 3 s"


def test_many_cells_make_a_table_with_ratios(sweep, capsys):
    cells = [make_cell("none"), make_cell("ok"), make_cell("unsupported"), make_cell("wrong", at="parity")]
    sweep.run(cells)
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines() if line.startswith("  ")]
    assert ["none", "16", "ok", "1,000", "B", "1", "B", "1", "s", "reference", "1"] in rows
    assert "wrong: scenario(do=wrong, at=parity), tiny s=16" in said
    assert "4 cells: 1 wrong, 1 unsupported, 2 ok" in said


def test_on_the_cpu_one_child_runs_at_a_time(sweep):
    cells = [make_cell("exclusive", seq_len=length) for length in (16, 32, 64)]
    assert sweep.run(cells, passes=("memory",)) == 0


def test_devices_run_blocks_side_by_side_and_a_block_stays_on_its_device(sweep, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    sweep.fingerprint = {**sweep.fingerprint, "type": "cuda", "count": 2}
    cells = [make_cell("meet", seq_len=length, device="cuda") for length in (16, 32)]
    assert sweep.run(cells, limits=LimitsConfig(timeout_s=20.0)) == 0
    leases = {(r.config["seq_len"], r.detail["lease"]) for r in sweep.store.records()}
    assert leases in ({(16, "0"), (32, "1")}, {(16, "1"), (32, "0")})
    assert {r.protocol["host_memory_bytes"] for r in sweep.store.records()} == {None}


def test_a_killed_fork_server_costs_one_pass_and_is_started_again(sweep):
    cells = [make_cell("kill_server"), make_cell("ok")]
    assert sweep.run(cells, passes=("memory",)) == 5
    assert [sweep.status(cell) for cell in cells] == ["crash", "ok"]


def test_an_error_of_the_parent_kills_its_children_and_closes_the_tracker(sweep, monkeypatch):
    def broken(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(RecordStore, "write", broken)
    tracker = NotingTracker()
    with pytest.raises(OSError, match="no space left"):
        sweep.run([make_cell("abort")], tracker=tracker)
    assert tracker.calls == ["open", "close"]
    assert tracker.manifest["state"] == "stopped"

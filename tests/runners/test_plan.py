import dataclasses
import io

import pytest
from runner_cases import make_cell, make_session
from test_schedule import record_of

from runners.eta import Estimated, Eta, estimated, steps_of, weight
from runners.plan import flops_per_s, print_plan
from runners.schedule import cell_keys
from suite.config.schema import HardwareConfig, TrainerConfig
from suite.store import RecordStore

CPU = {"type": "cpu", "count": 1, "rocm": ""}
TRAINER = TrainerConfig()


def predict(config):
    return Estimated(1e9 * config.seq_len, 1000 * config.seq_len)


def planned(tmp_path, cells, refused=None, fingerprint=CPU, **changes):
    session = make_session(tmp_path, **changes)
    store, out = RecordStore(tmp_path / "night"), io.StringIO()
    print_plan(cells, session, refused or {}, store, fingerprint, predict=predict, out=out)
    return out.getvalue()


def test_a_plan_lists_cells_and_starts_nothing(tmp_path):
    cells = [make_cell("none"), make_cell("ok"), make_cell("abort", seq_len=32)]
    text = planned(tmp_path, cells, {cells[1].id: "no such kernel"}, budget_bytes=20_000)
    rows = [line.split() for line in text.splitlines() if line.startswith("  ")]
    assert rows[1][:7] == ["none", "5", "0", "~15.6", "KiB", "yes", "16"]
    assert rows[3][:7] == ["scenario(do=abort)", "5", "0", "~31.2", "KiB", "no:", "oom"]
    assert f"unsupported: {cells[1].policy_label}, {cells[1].workload_label}: no such kernel\n" in text
    assert (
        "3 cells, 1 of them unsupported; passes: memory, flops, parity, time x 2, budget 19.5 KiB" in text
    )
    assert "at 20 GFLOP/s (assumed for 1 CPU threads); nothing was started" in text
    assert not list(tmp_path.iterdir())


def test_what_is_measured_is_not_planned_again_nor_what_follows_a_verdict(tmp_path):
    cells = [make_cell("none"), make_cell("ok"), make_cell("abort")]
    store = RecordStore(tmp_path / "night")
    for key in cell_keys(cells[0], ("memory", "flops", "parity", "time"), 2):
        record = record_of(cells[0], key.pass_, key.round, "crash")
        record.error.update(type="X", where="")
        store.write(record)
    crash = record_of(cells[1], "memory", 0, "crash")
    store.write(crash)
    rows = [line.split() for line in planned(tmp_path, cells).splitlines() if line.startswith("  ")]
    assert [row[1:3] for row in rows[1:]] == [["0", "5"], ["0", "1"], ["5", "0"]]
    again = planned(tmp_path, cells, retry=("all",))
    assert [row.split()[1] for row in again.splitlines() if row.startswith("  ")][1:] == ["5", "5", "5"]
    assert "nothing is left to run; nothing was started" in planned(tmp_path, cells[:2])


def test_rounds_that_run_again_to_be_compared_are_planned_and_said(tmp_path):
    cells = [make_cell("none"), make_cell("ok")]
    store = RecordStore(tmp_path / "night")
    for key in cell_keys(cells[1], ("memory", "flops", "parity", "time"), 2):
        record = record_of(cells[1], key.pass_, key.round, "crash", session="old")
        store.write(record if key.pass_ != "time" else healthy_round(record))
    text = planned(tmp_path, cells, passes=("time",))
    rows = [line.split() for line in text.splitlines() if line.startswith("  ")]
    assert [row[1:3] for row in rows[1:]] == [["2", "0"], ["2", "0"]]
    assert "\n2 measured rounds run again: only rounds of one session can be compared\n" in text


def healthy_round(record):
    figures = {"step_time_s": 1.0, "tokens_per_s": 1.0, "steps_count": 1}
    return dataclasses.replace(record, status="ok", error=None, figures=figures)


def test_what_is_measured_is_shown_and_not_its_estimate(tmp_path):
    cells = [make_cell("none"), make_cell("ok"), make_cell("abort"), make_cell("wrong")]
    store = RecordStore(tmp_path / "night")
    figures = {"static_bytes": 1, "activation_bytes": 1, "saved_bytes": 1}
    for cell, peak in zip(cells, (2048, 1024, None, 1024), strict=True):
        record = record_of(cell, "memory", 0, "ok" if peak else "crash")
        record.figures.update({**figures, "peak_bytes": peak} if peak else {})
        store.write(record)
    store.write(record_of(cells[3], "parity", 0, "wrong"))
    text = planned(tmp_path, cells, budget_bytes=2000, passes=("memory", "parity"))
    rows = [line.split() for line in text.splitlines() if line.startswith("  ")]
    assert [row[3:7] for row in rows[1:3]] == [
        ["2.0", "KiB", "measured", "no:"],
        ["1.0", "KiB", "measured", "yes"],
    ]
    assert rows[3][3:5] == ["-", "crash"]
    assert rows[4][3:7] == ["1.0", "KiB", "measured", "wrong"]


def test_devices_share_the_work(tmp_path):
    cells = [make_cell("ok", seq_len=16 * n, device="cuda") for n in (1, 2)]
    times = [
        planned(tmp_path, cells, fingerprint={"type": "cuda", "count": count, "rocm": ""}).splitlines()[-1]
        for count in (1, 2)
    ]
    assert times[0].startswith("at most about 80.2 s")
    assert times[1].startswith("at most about 40.1 s")


def test_the_rate_is_measured_else_the_hardware_s_else_assumed():
    cell, gpu = make_cell("ok", threads=2), make_cell("ok", device="cuda")
    card = HardwareConfig(name="card", peak_flops_per_s={"fp32": 1e14})
    flops, timed = record_of(cell, "flops", 0), record_of(cell, "time", 0)
    flops.figures["executed_flops"], timed.figures["step_time_s"] = 6e9, 2.0
    assert flops_per_s([flops, timed], card, [gpu]) == (3e9, "measured here")
    assert flops_per_s([], card, [gpu]) == (4e13, "40% of the peak of card")
    assert flops_per_s([timed], HardwareConfig(), [cell]) == (4e10, "assumed for 2 CPU threads")


def test_time_left_is_scaled_by_what_was_taken():
    cells = [make_cell("none"), make_cell("ok", seq_len=32)]
    keys = {cell.id: cell_keys(cell, ("memory", "time"), 2) for cell in cells}
    eta = Eta(TRAINER, predict=predict)
    for cell in cells:
        eta.add(cell, keys[cell.id])
    pending = {key for found in keys.values() for key in found}
    assert eta.left_s(pending) is None
    memory, first, second = keys[cells[0].id]
    eta.took(memory, 2.0)
    eta.took(first, 3.0)
    assert eta.left_s({second}) == pytest.approx(3.0)
    big = keys[cells[1].id]
    ratio = weight(32e9, "time", TRAINER) / weight(16e9, "time", TRAINER)
    assert eta.left_s({big[1]}) == pytest.approx(3.0 * ratio)
    eta.places = 2
    assert eta.left_s({second}) == pytest.approx(1.5)
    assert eta.left_s(set()) == 0


def test_an_estimate_that_fails_stops_nothing(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "suite.predict.estimate", None)
    assert estimated(make_cell().config) == Estimated(0.0, None)
    assert steps_of("time", TRAINER) == 12.0

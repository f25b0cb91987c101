"""From a folder to cells: order, what is missing, what is damaged."""

import json

import pytest
import sweep_builder as build

from analysis.load import load_run
from suite.errors import UsageError


def test_cells_come_in_manifest_order_and_missing_ones_say_so(tmp_path):
    cells = [build.cell("full"), build.cell("none"), build.cell("ops", {"save": "attn"})]
    build.store(tmp_path, [build.memory(cells[1], 50e6, 20e6)], build.manifest(cells))
    run = load_run(tmp_path)
    assert [(c.policy, c.status) for c in run.cells] == [
        ("full", "not measured"),
        ("none", "ok"),
        ("ops(save=attn)", "not measured"),
    ]
    assert run.counts() == {"not measured": 2, "ok": 1}


def test_records_of_no_cell_in_the_manifest_come_last(tmp_path):
    known, stranger = build.cell("full"), build.cell("none")
    build.store(tmp_path, [build.memory(c, 5e7, 2e7) for c in (stranger, known)], build.manifest([known]))
    assert [c.policy for c in load_run(tmp_path).cells] == ["full", "none"]


def test_damaged_files_are_listed_and_the_others_still_count(tmp_path):
    cell = build.cell()
    store = build.store(
        tmp_path, [build.memory(cell, 5e7, 2e7), build.flops(cell, 1e9, 0)], build.manifest([cell])
    )
    torn, *_ = sorted((tmp_path / "records").glob("*flops*"))
    torn.write_text(torn.read_text()[:100])
    foreign = json.loads(store.record_path(build.memory(cell, 1, 1).key).read_text())
    foreign |= {"config": {"policy": {}}, "cell": "f" * 16}
    (tmp_path / "records" / f"{'f' * 16}-memory-000.json").write_text(json.dumps(foreign))
    run = load_run(tmp_path)
    assert [c.status for c in run.cells] == ["ok"]
    assert run.records_count == 1
    assert len(run.invalid) == 2
    assert any("not JSON" in line for line in run.invalid)
    assert any("config is not a cell's" in line for line in run.invalid)


def test_the_manifests_budget_and_reference_judge_the_cells(tmp_path):
    cells = [build.cell("none"), build.cell("full")]
    records = [build.memory(cells[0], 200 * build.MIB, 9e7), build.memory(cells[1], 90 * build.MIB, 1e7)]
    build.store(tmp_path, records, build.manifest(cells, budget_bytes=100 * build.MIB))
    statuses = {c.policy: (c.status, c.reason) for c in load_run(tmp_path).cells}
    assert statuses["none"] == ("oom", "needs 200 MiB in backward, the budget is 100 MiB")
    assert statuses["full"] == ("ok", "")


def test_what_a_healthy_cell_still_lacks_is_named(tmp_path):
    whole, half, dead = build.cell("none"), build.cell("full"), build.cell("blocks")
    records = [
        build.memory(whole, 5e7, 2e7),
        build.flops(whole, 1e9, 0),
        build.parity(whole),
        *(build.time(whole, 0.1, i) for i in range(2)),
        build.memory(half, 4e7, 1e7),
        build.time(half, 0.1, 0),
        build.record(dead, "memory", "crash"),
    ]
    build.store(tmp_path, records, build.manifest([whole, half, dead], rounds=2))
    run = load_run(tmp_path)
    assert [run.pending(c) for c in run.cells] == ["", "flops, parity, time (1 of 2 rounds)", ""]


def test_records_without_a_manifest_are_enough(tmp_path):
    build.store(tmp_path / "mine", [build.memory(build.cell(), 5e7, 2e7)], None)
    run = load_run(tmp_path / "mine")
    assert (run.name, run.reference, run.budget_bytes) == ("mine", "none", None)
    assert [c.policy for c in run.cells] == ["none"]


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_is_no_sweep_is_refused(tmp_path, there):
    folder = tmp_path / "empty"
    if there:
        folder.mkdir()
    with pytest.raises(UsageError, match=r"run_dir=.*empty: expected the folder of a sweep"):
        load_run(folder)

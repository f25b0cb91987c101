import dataclasses
import subprocess
import sys

import pytest
from runner_cases import make_cell, make_session

from runners.manifest import describe, differences, reconcile, sole_parent
from suite.config.schema import TrainerConfig
from suite.errors import UsageError
from suite.store import RecordStore

CODE = {"version": "1", "source_digest": "a" * 64, "git": "", "dirty": False}
MACHINE = {"type": "cpu", "torch": "2.13.0", "load_1min": 0.1, "host": "a", "warnings": []}


@pytest.fixture
def store(tmp_path):
    return RecordStore(tmp_path / "night")


def described(tmp_path, cells=("none", "ok"), code=CODE, machine=MACHINE, **changes):
    session = make_session(tmp_path, **changes)
    manifest = describe(
        [make_cell(name) for name in cells],
        session,
        code=code,
        fingerprint=machine,
        command="python -m suite",
        host_memory_bytes=None,
    )
    return manifest, session


def continued(store, described):
    manifest, session = described
    return reconcile(store, manifest, session)


def test_a_new_sweep_is_described_whole(tmp_path, store):
    manifest, session = described(tmp_path)
    assert reconcile(store, manifest, session) == manifest
    assert manifest["schema"] == 1
    assert manifest["state"] == "running"
    assert [cell["id"] for cell in manifest["cells"]] == [make_cell("none").id, make_cell("ok").id]
    assert manifest["cells"][0].keys() == {"id", "workload", "config"}
    assert not store.root.exists()


def test_more_cells_rounds_and_another_budget_go_on(tmp_path, store):
    before, _ = described(tmp_path, cells=("none", "ok"))
    store.write_manifest(before)
    after = continued(store, described(tmp_path, cells=("none", "abort"), rounds=9, budget_bytes=5))
    ids = [make_cell(name).id for name in ("none", "abort", "ok")]
    assert [cell["id"] for cell in after["cells"]] == ids
    assert (after["rounds"], after["budget_bytes"]) == (9, 5)
    assert after["created_at"] == before["created_at"]
    assert after["updated_at"] > before["updated_at"]


def test_another_load_or_host_of_the_same_kind_goes_on(tmp_path, store):
    store.write_manifest(described(tmp_path)[0])
    busy = {**MACHINE, "load_1min": 9.0, "host": "b", "warnings": ["busy"]}
    assert continued(store, described(tmp_path, machine=busy))["fingerprint"] == busy


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"trainer": TrainerConfig(steps=9)}, "trainer.steps: 5 → 9"),
        ({"code": {**CODE, "source_digest": "b" * 64}}, f"code.source_digest: {'a' * 12} → {'b' * 12}"),
        ({"machine": {**MACHINE, "torch": "2.11.0"}}, "fingerprint.torch: 2.13.0 → 2.11.0"),
    ],
)
def test_other_ways_of_measuring_are_refused_with_the_difference(tmp_path, store, change, shown):
    store.write_manifest(described(tmp_path)[0])
    with pytest.raises(UsageError) as refusal:
        continued(store, described(tmp_path, **change))
    text = str(refusal.value)
    assert text.startswith("sweep.name=night: ")
    assert "\n" not in text
    for part in (shown, "adopt=true", "retry=[all]", "sweep.name="):
        assert part in text
    assert continued(store, described(tmp_path, **change, adopt=True))["redo_before"] == ""
    again = continued(store, described(tmp_path, **change, retry=("all",)))
    assert again["redo_before"] == again["updated_at"]


def test_a_retry_of_all_stays_begun_until_it_is_done(tmp_path, store):
    begun, _ = described(tmp_path, retry=("all",))
    store.write_manifest(begun)
    assert continued(store, described(tmp_path))["redo_before"] == begun["redo_before"] > ""


def test_differences_are_empty_only_for_the_same_way(tmp_path):
    one, other = described(tmp_path)[0], described(tmp_path, rounds=7)[0]
    assert differences(one, other) == []
    threaded = dataclasses.replace(make_cell().config, threads=2)
    assert differences(one, {**one, "protocol": {**one["protocol"], "threads": threaded.threads}}) == [
        "threads: 1 → 2"
    ]


def test_one_parent_per_sweep(tmp_path):
    hold = (
        "import sys, time; from pathlib import Path; from runners.manifest import sole_parent\n"
        "with sole_parent(Path(sys.argv[1]), 'night'): print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", hold, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(
            UsageError, match=rf"^sweep\.name=night: process {other.pid} is running this sweep"
        ):
            sole_parent(tmp_path, "night").__enter__()
        other.kill()
    with sole_parent(tmp_path, "night"):
        pass


def test_what_a_kill_left_half_written_is_cleared(tmp_path):
    for name in ("records/.a-memory-000.json.xyz.tmp", ".sweep.json.xyz.tmp", "records/a-memory-000.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{")
    with sole_parent(tmp_path, "night"):
        left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(left) == [".lock", "a-memory-000.json"]


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UsageError, match=r"^paths\.runs=.*must be a folder one can write to"),
        sole_parent(tmp_path / "file" / "night", "night"),
    ):
        pass

"""The way of a cell, from the command line to the record, MLflow and the report."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from suite_process import SMALL, environment, suite

from suite.record import Record
from suite.store import RecordStore
from suite.summary import summarise


def _store(folder: Path, prefix: str = "") -> RecordStore:
    (root,) = [p for p in (folder / "runs").iterdir() if p.is_dir() and p.name.startswith(prefix)]
    return RecordStore(root)


def _sweeps(folder: Path) -> list[Path]:
    return [p.parent for p in (folder / "runs").glob("*/sweep.json")]


def _keys(records: list[Record]) -> set[str]:
    return {str(r.key) for r in records}


def test_one_cell_is_answered_against_its_reference(tmp_path: Path) -> None:
    done = suite(tmp_path, *SMALL, "policy=full")
    assert done.returncode == 0, done.stderr
    (root,) = _sweeps(tmp_path)
    records = RecordStore(root).records()
    assert len(records) == 8
    assert {r.status for r in records} == {"ok"}
    assert {r.pass_ for r in records} == {"memory", "flops", "parity", "time"}
    assert "recomputed" in done.stdout
    assert "mlflow ui" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("At 16 tokens ")
    assert (tmp_path / "reports" / root.name / "index.html").is_file()
    again = suite(tmp_path, *SMALL, "policy=full")
    assert again.returncode == 0
    assert RecordStore(root).records() == records


def test_a_multirun_is_one_session_over_the_product_of_its_axes(tmp_path: Path) -> None:
    words = ["-m", *SMALL, "model=llama_nano,gpt_nano", "policy=none,full", "seq_len=8,16"]
    done = suite(tmp_path, *words, "passes=[memory]", "tracking=none", "report=false")
    assert done.returncode == 0, done.stderr
    (root,) = _sweeps(tmp_path)
    records = RecordStore(root).records()
    points = {
        (r.config["model"]["name"], r.config["policy"]["family"], r.config["seq_len"]) for r in records
    }
    assert points == {
        (m, p, s) for m in ("llama_nano", "gpt_nano") for p in ("none", "full") for s in (8, 16)
    }
    assert len(records) == 8
    # Hydra's own multirun.yaml lies with the runs, not in the user's folder.
    assert {path.name for path in tmp_path.iterdir()} <= {"runs", "reports"}


def test_a_plan_prints_and_starts_nothing(tmp_path: Path) -> None:
    done = suite(tmp_path, "+sweep=long_seq", "scale=cpu", "plan=true")
    assert done.returncode == 0, done.stderr
    assert "41 cells" in done.stdout
    assert "nothing was started" in done.stdout
    assert not list(tmp_path.rglob("records"))


def test_a_sweep_gets_its_reference_and_keeps_what_is_possible(tmp_path: Path) -> None:
    words = ["-m", "model=gpt_nano,llama_nano", "seq_len=1024,2048", "policy=blocks", "policy.every_n=1,2"]
    done = suite(tmp_path, *words, "reference=full", "plan=true")
    assert done.returncode == 0, done.stderr
    # Two cells a workload and their reference; no reference where no cell is possible.
    assert "11 cells, 2 of them unsupported" in done.stdout
    assert done.stdout.count("\n  full ") == 3
    assert done.stdout.count("seq_len=2048: gpt_nano has learned positions up to model.max_seq_len") == 2


def test_bytes_and_flops_are_identical_between_two_runs(tmp_path: Path) -> None:
    figures = []
    for name in ("a", "b"):
        words = ["-m", *SMALL, "policy=none,full,ops", "passes=[memory,flops,parity]", "tracking=none"]
        done = suite(tmp_path, *words, f"paths.runs={name}", "report=false")
        assert done.returncode == 0, done.stderr
        (root,) = [p.parent for p in (tmp_path / name).glob("*/sweep.json")]
        figures.append({str(r.key): (r.figures, r.detail) for r in RecordStore(root).records()})
    assert figures[0] == figures[1]


def test_a_budget_is_judged_and_raising_it_measures_only_what_is_missing(tmp_path: Path) -> None:
    words = [
        "-m",
        *SMALL,
        "seq_len=64",
        "policy=none,full",
        "tracking=none",
        "report=false",
        "sweep.name=b",
    ]
    done = suite(tmp_path, *words, "budget=10MiB")
    assert done.returncode == 0, done.stderr
    store = _store(tmp_path, "b")
    before = store.records()
    verdicts = summarise(before, budget_bytes=10 * 2**20)
    assert {s.policy: s.status for s in verdicts.values()} == {"none": "oom", "full": "ok"}
    assert "the budget is 10.0 MiB" in done.stdout
    more = suite(tmp_path, *words, "budget=1GiB")
    assert more.returncode == 0, more.stderr
    after = store.records()
    assert _keys(before) < _keys(after)
    now = {str(r.key): r for r in after}
    # But for the rounds of the policy that was timed without the reference beside it: they say nothing of it.
    assert {str(r.key) for r in before if now[str(r.key)] != r} == {
        str(r.key) for r in before if r.pass_ == "time"
    }
    assert "rounds of full again: only rounds of one session can be compared" in more.stdout
    assert len({r.session for r in after if r.pass_ == "time"}) == 1
    assert "against none" in more.stdout


def test_wrong_gradients_are_found_said_and_not_timed(tmp_path: Path) -> None:
    words = [
        *SMALL,
        "model=gpt_nano",
        "model.dropout=0.5",
        "policy=full",
        "policy.preserve_rng_state=false",
    ]
    done = suite(tmp_path, *words, "tracking=none", "report=false")
    assert done.returncode == 5
    assert "wrong" in done.stdout
    (root,) = _sweeps(tmp_path)
    records = [r for r in RecordStore(root).records() if r.config["policy"]["options"]]
    assert {r.pass_: r.status for r in records} == {"memory": "ok", "flops": "ok", "parity": "wrong"}


def test_killed_in_the_middle_and_started_again(tmp_path: Path) -> None:
    """SIGKILL: nothing measured twice, nothing lost, one MLflow parent, no run left RUNNING."""
    words = ["-m", *SMALL, "policy=none,full,segments,ops", "seq_len=8,16", "rounds=2", "sweep.name=killed"]
    command = [sys.executable, "-m", "suite", *words]
    first = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    records = tmp_path / "runs" / "killed" / "records"
    deadline = time.monotonic() + 120
    while len(list(records.glob("*.json"))) < 14 and time.monotonic() < deadline:
        assert first.poll() is None, "the sweep ended before it could be killed"
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    store = _store(tmp_path, "killed")
    time.sleep(0.5)  # a child that was about to write is dead or done by now
    before = {str(r.key): r for r in store.records()}
    assert 14 <= len(before) < 40
    again = suite(tmp_path, *words)
    assert again.returncode == 0, again.stderr
    after = {str(r.key): r for r in store.records()}
    assert len(after) == 8 * (3 + 2)
    assert all(after[key] == record for key, record in before.items())
    _assert_one_finished_parent(tmp_path, children=8)


def _assert_one_finished_parent(folder: Path, children: int) -> None:
    program = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
runs = client.search_runs([e.experiment_id for e in client.search_experiments()], max_results=1000)
print(json.dumps([[r.data.tags.get("suite.kind"), r.info.status] for r in runs]))
"""
    uri = f"sqlite:///{folder}/runs/mlflow.db"
    done = subprocess.run(
        [sys.executable, "-c", program, uri], capture_output=True, text=True, check=True, timeout=120
    )
    runs = json.loads(done.stdout.splitlines()[-1])
    assert [kind for kind, _ in runs].count("sweep") == 1
    assert [kind for kind, _ in runs].count("cell") == children
    assert {status for _, status in runs} == {"FINISHED"}


def test_the_gpu_check_rehearsed_without_what_it_must_not_need(tmp_path: Path) -> None:
    # Only packages that neither torch nor Lightning probes for by their metadata can be blocked here.
    names = ["mlflow", "optuna", "submitit", "plotly", "typer", "jinja2", "pynvml"]
    blocker = tmp_path / "sitecustomize.py"
    blocker.write_text(
        "import sys\n"
        f"BLOCKED = set({names!r})\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in BLOCKED:\n"
        "            raise ModuleNotFoundError(f'{name} is blocked', name=name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
    )
    env = environment()
    env["PYTHONPATH"] = f"{tmp_path}:{env['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "runners.gpu_check", "--rehearse", "device.threads=1"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result = json.loads((tmp_path / "runs/gpu_rehearsal/gpu_check.json").read_text())
    assert result["ran_out_of_memory"] is True
    assert len(result["cells"]) == 21
    assert [c["status"] for c in result["cells"]].count("ok") == 20
    for cell in result["cells"][:-1]:
        assert cell["memory"]["peak_bytes"] > 0
        assert cell["parity"]["parameters_differing_count"] == 0
        assert len(cell["rounds_s"]) == 2


@pytest.mark.parametrize("verb", ["report", "sync"])
def test_records_can_be_rendered_and_mirrored_again(tmp_path: Path, verb: str) -> None:
    done = suite(tmp_path, *SMALL, "policy=none", "tracking=none", "report=false")
    assert done.returncode == 0, done.stderr
    (root,) = _sweeps(tmp_path)
    command = [sys.executable, "-m", "analysis", verb, str(root)]
    again = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert again.returncode == 0, again.stderr
    if verb == "report":
        assert (tmp_path / "reports" / root.name / "report.md").is_file()
    else:
        _assert_one_finished_parent(tmp_path, children=1)


def test_a_rule_that_matches_nothing_is_bad_input_although_only_the_run_can_tell(tmp_path: Path) -> None:
    words = [*SMALL, "policy=ops", "policy.save=[aten.mm,aten.nonsense]", "tracking=none", "report=false"]
    done = suite(tmp_path, *words)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()[-1:]
    assert line.startswith("error: policy=ops(save=mm+nonsense): policy.save=nonsense: matched nothing")

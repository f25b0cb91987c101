"""Processes that are killed with SIGKILL, and processes that start at the same moment."""

import signal
import subprocess
import sys
from pathlib import Path

from mlflow.tracking import MlflowClient
from tracking_builders import small_sweep

from suite.config.schema import PathsConfig, TrackingConfig
from suite.tracking import open_tracker

HERE = Path(__file__).parent

# Ends itself by SIGKILL when MLflow puts the n-th artifact into its place, in the middle of sending.
MIRROR = """
import os, signal, sys
from pathlib import Path
from suite.config.schema import PathsConfig, TrackingConfig
from suite.tracking import open_tracker
from tracking_builders import small_sweep

runs, die_at = Path(sys.argv[1]), int(sys.argv[2])
sweep = small_sweep(runs, sys.argv[3])
placed = 0

def die(event, arguments):
    global placed
    if event == "os.rename" and "mlflow-artifacts" in str(arguments[1]):
        placed += 1
        if placed == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(die)
tracker = open_tracker(TrackingConfig(), PathsConfig(str(runs)))
tracker.open(sweep.manifest())
# The healthy cells first, whatever their ids are.
for summary in sorted(sweep.summaries().values(), key=lambda summary: summary.status != "ok"):
    tracker.cell(summary, sweep.store)
tracker.close(sweep.manifest("finished"), None)
assert tracker.pending == 0 and "torch" not in sys.modules
"""


def start(runs: Path, *, die_at: int = 0, name: str = "long_seq") -> subprocess.Popen[bytes]:
    paths = {
        "PYTHONPATH": f"{HERE.parents[2]}:{HERE.parents[1]}:{HERE}",
        "OMP_NUM_THREADS": "1",
        "PATH": "/usr/bin:/bin",
    }
    return subprocess.Popen([sys.executable, "-c", MIRROR, str(runs), str(die_at), name], env=paths)


def runs_of(runs: Path) -> dict[tuple[str, str], str]:
    client = MlflowClient(f"sqlite:///{runs}/mlflow.db")
    experiment = client.get_experiment_by_name("recompute-suite")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id])
    statuses = {
        (r.data.tags["suite.sweep"], r.data.tags.get("suite.policy", "sweep")): r.info.status for r in found
    }
    assert len(statuses) == len(found)
    return statuses


def test_a_killed_sweep_is_taken_up_again(tmp_path: Path) -> None:
    # sweep.json comes first, then the six records and five logs of the first cell.
    killed = start(tmp_path, die_at=16)
    assert killed.wait(180) == -signal.SIGKILL
    assert sorted(runs_of(tmp_path).values()) == ["FINISHED", "RUNNING", "RUNNING"]

    sweep = small_sweep(tmp_path)
    tracker = open_tracker(TrackingConfig(), PathsConfig(str(tmp_path)))
    tracker.open(sweep.manifest())
    assert sorted(runs_of(tmp_path).values()) == ["FINISHED", "KILLED", "RUNNING"]
    for summary in sweep.summaries().values():
        tracker.cell(summary, sweep.store)
    tracker.close(sweep.manifest("finished"), None)
    assert runs_of(tmp_path) == {
        ("long_seq", "sweep"): "FINISHED",
        ("long_seq", "none"): "FINISHED",
        ("long_seq", "full(early_stop=true)"): "FINISHED",
        ("long_seq", "segments(n=sqrt)"): "FAILED",
    }


def test_what_a_killed_sweep_left_open_is_closed_by_any_other(tmp_path: Path) -> None:
    killed = start(tmp_path, die_at=3)
    assert killed.wait(180) == -signal.SIGKILL
    assert list(runs_of(tmp_path).values()) == ["RUNNING", "RUNNING"]
    other = small_sweep(tmp_path, "other")
    tracker = open_tracker(TrackingConfig(), PathsConfig(str(tmp_path)))
    tracker.open(other.manifest())
    statuses = runs_of(tmp_path)
    assert statuses.pop(("other", "sweep")) == "RUNNING"
    assert list(statuses.values()) == ["KILLED", "KILLED"]
    # A live one is left alone.
    third = open_tracker(TrackingConfig(), PathsConfig(str(tmp_path)))
    third.open(small_sweep(tmp_path, "third").manifest())
    assert runs_of(tmp_path)[("other", "sweep")] == "RUNNING"


def test_sweeps_that_start_together_on_a_fresh_database(tmp_path: Path) -> None:
    processes = [start(tmp_path, name=name) for name in ("a", "b")]
    assert [process.wait(180) for process in processes] == [0, 0]
    statuses = runs_of(tmp_path)
    assert len(statuses) == 8
    assert "RUNNING" not in statuses.values()

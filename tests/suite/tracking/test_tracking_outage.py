"""A server that goes away in the middle of a sweep costs one warning and nothing else."""

import signal
import time
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient
from tracking_builders import cell_of, small_sweep
from tracking_stores import Server

from suite.config.schema import PathsConfig, TrackingConfig
from suite.tracking import open_tracker


def verdicts(server: Server, experiment: str) -> dict[str, str]:
    client = MlflowClient(server.uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    runs = client.search_runs([found.experiment_id])
    return {r.data.tags.get("suite.policy", "sweep"): r.info.status for r in runs}


COMPLETE = {
    "sweep": "FINISHED",
    "none": "FINISHED",
    "full(early_stop=true)": "FINISHED",
    "segments(n=sqrt)": "FAILED",
}


def test_a_server_killed_and_restarted(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = small_sweep(tmp_path / "runs")
    none, full, segments = (sweep.summaries()[c.id] for c in sweep.cells)
    config, paths = TrackingConfig("mlflow", server.uri, "killed"), PathsConfig(str(tmp_path / "runs"))
    tracker = open_tracker(config, paths)
    tracker.open(sweep.manifest())
    tracker.cell(none, sweep.store)
    assert tracker.pending == 0

    server.kill()
    began_s = time.monotonic()
    tracker.cell(full, sweep.store)
    tracker.cell(segments, sweep.store)
    tracker.close(sweep.manifest("finished"), None)
    assert time.monotonic() - began_s < 10
    # Two cells and the end of the sweep.
    assert tracker.pending == 3
    outage, summary = (r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    assert outage.startswith("MLflow does not answer (")
    assert "lacks 3 of this sweep's runs" in summary

    server.start()
    tracker.close(sweep.manifest("finished"), None)
    assert tracker.pending == 0
    assert verdicts(server, "killed") == COMPLETE


def test_a_later_session_sends_what_an_earlier_one_could_not(server: Server, tmp_path: Path) -> None:
    sweep = small_sweep(tmp_path / "runs")
    config, paths = TrackingConfig("mlflow", server.uri, "later"), PathsConfig(str(tmp_path / "runs"))
    first = open_tracker(config, paths)
    first.open(sweep.manifest())
    # Gone with everything it had in memory.
    del first
    later = open_tracker(config, paths)
    later.open(sweep.manifest())
    for summary in sweep.summaries().values():
        later.cell(summary, sweep.store)
    later.close(sweep.manifest("finished"), None)
    assert verdicts(server, "later") == COMPLETE


def test_a_server_that_hangs_is_asked_once_and_then_left_alone(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = small_sweep(tmp_path / "runs")
    config, paths = TrackingConfig("mlflow", server.uri, "hangs"), PathsConfig(str(tmp_path / "runs"))
    tracker = open_tracker(config, paths)
    tracker.open(sweep.manifest())
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    server.send_signal(signal.SIGSTOP)
    try:
        first, *others = sweep.summaries().values()
        tracker.cell(first, sweep.store)
        began_s = time.monotonic()
        for _ in range(100):
            for summary in others:
                tracker.cell(summary, sweep.store)
        assert time.monotonic() - began_s < 0.5
        assert tracker.pending == 3
    finally:
        server.send_signal(signal.SIGCONT)
    monkeypatch.undo()
    assert len(caplog.records) == 1
    # The request that timed out was carried out after all: its run is found and not made twice.
    tracker.close(sweep.manifest("finished"), None)
    assert tracker.pending == 0
    assert verdicts(server, "hangs") == COMPLETE
    client = MlflowClient(server.uri)
    experiment = client.get_experiment_by_name("hangs")
    assert experiment is not None
    assert len(client.search_runs([experiment.experiment_id])) == 4


def test_a_cell_whose_records_are_gone_does_not_hold_up_the_others(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = small_sweep(tmp_path / "runs")
    summaries = sweep.summaries()
    gone = cell_of("none").id
    for path in (sweep.store.root / "records").glob(f"{gone}-*"):
        path.unlink()
    tracker = open_tracker(
        TrackingConfig("mlflow", server.uri, "gone"), PathsConfig(str(tmp_path / "runs"))
    )
    tracker.open(sweep.manifest())
    for summary in summaries.values():
        tracker.cell(summary, sweep.store)
    tracker.close(sweep.manifest("finished"), None)
    assert tracker.pending == 1
    assert verdicts(server, "gone") == {p: s for p, s in COMPLETE.items() if p != "none"}
    assert f"did not take cell {gone}" in caplog.messages[0]

"""The MLflow mirror against a real sqlite store and a real server."""

import json
from pathlib import Path

import pytest
from mlflow.entities import Run, ViewType
from mlflow.tracking import MlflowClient
from tracking_builders import Sweep, cell_of, small_sweep
from tracking_stores import Backend

from suite.store import RecordStore
from suite.tracking import Tracker, open_tracker


class Reader:
    """What someone sees who looks into the store."""

    def __init__(self, backend: Backend) -> None:
        self.client = MlflowClient(backend.tracking.uri or f"sqlite:///{backend.paths.runs}/mlflow.db")
        experiment = self.client.get_experiment_by_name(backend.tracking.experiment)
        assert experiment is not None
        self.experiment = experiment

    def runs(self, view: int = ViewType.ACTIVE_ONLY) -> list[Run]:
        return list(self.client.search_runs([self.experiment.experiment_id], run_view_type=view))

    def parent(self) -> Run:
        (parent,) = [r for r in self.runs() if r.data.tags["suite.kind"] == "sweep"]
        return parent

    def children(self) -> dict[str, Run]:
        found = [r for r in self.runs() if r.data.tags["suite.kind"] == "cell"]
        children = {r.data.tags["suite.policy"]: r for r in found}
        assert len(children) == len(found)
        return children

    def history(self, run: Run, metric: str) -> list[tuple[int, float]]:
        points = self.client.get_metric_history(run.info.run_id, metric)
        return sorted((p.step, p.value) for p in points)

    def artifacts(self, run: Run, folder: str) -> list[str]:
        return [Path(f.path).name for f in self.client.list_artifacts(run.info.run_id, folder)]


def mirror(backend: Backend, sweep: Sweep, state: str = "finished", report: Path | None = None) -> Tracker:
    tracker = open_tracker(backend.tracking, backend.paths)
    tracker.open(sweep.manifest())
    for summary in sweep.summaries().values():
        tracker.cell(summary, sweep.store)
    tracker.close(sweep.manifest(state), report)
    assert tracker.pending == 0
    return tracker


def test_a_sweep_is_a_parent_and_each_cell_a_child_with_all_that_was_measured(
    backend: Backend, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sweep = small_sweep(backend.records, budget_bytes=2 * 3 * 1000 * 512 - 1)
    report = tmp_path / "report"
    report.mkdir()
    (report / "index.html").write_text("<h1>Report</h1>")
    tracker = mirror(backend, sweep, report=report)
    # Nothing that MLflow would print by itself.
    assert capfd.readouterr() == ("", "")

    reader = Reader(backend)
    parent, children = reader.parent(), reader.children()
    where = tracker.where().splitlines()
    assert where[0] == (backend.tracking.uri or f"sqlite:///{backend.paths.runs}/mlflow.db")
    assert where[-1].startswith("http://127.0.0.1:")
    assert where[-1].endswith(f"/#/experiments/{reader.experiment.experiment_id}")
    assert parent.info.run_name == "long_seq"
    assert parent.info.status == "FINISHED"
    assert parent.info.end_time - parent.info.start_time == 120_000
    assert parent.data.tags["mlflow.source.name"] == "python -m suite +sweep=long_seq"
    assert reader.artifacts(parent, "report") == ["index.html"]
    sent = reader.client.download_artifacts(parent.info.run_id, "sweep.json", str(tmp_path))
    assert json.loads(Path(sent).read_text()) == sweep.manifest("finished")
    note = parent.data.tags["mlflow.note.content"]
    assert note.startswith("3 cells, memory budget 2.9 MiB, finished.")
    assert "| ok | 1 |\n| oom | 1 |\n| crash | 1 |" in note

    full = children["full(early_stop=true)"]
    assert full.info.run_name == "full(early_stop=true) s=512 @ llama_mini b=2 fp32 sdpa adamw-foreach cpu"
    assert full.info.status == "FINISHED"
    assert full.info.end_time - full.info.start_time == 4000 + 1500
    assert full.data.tags["mlflow.parentRunId"] == parent.info.run_id
    shown = {
        k: full.data.params[k]
        for k in ("policy", "policy.early_stop", "seq_len", "model.d_ff", "optimizer.kind")
    }
    assert shown == {
        "policy": "full(early_stop=true)",
        "policy.early_stop": "true",
        "seq_len": "512",
        "model.d_ff": "176",
        "optimizer.kind": "adamw",
    }
    assert full.data.metrics == {
        "peak_bytes": 1_024_000,
        "saved_bytes": 512_000,
        "static_bytes": 4096,
        "activation_bytes": 512_000,
        "peak_forward_bytes": 512_000,
        "model_flops": 10**9,
        "executed_flops": 10**9 + 512_000,
        "recomputed_flops": 512_000,
        "max_grad_abs_diff": 0,
        "parameters_compared_count": 21,
        "step_time_s": 0.265625,
        "tokens_per_s": 4032,
        "mfu_ratio": 10**9 / 0.265625 / 1e11,
        "hfu_ratio": (10**9 + 512_000) / 0.265625 / 1e11,
        "step_time_s_by_round": 0.28125,
        "live_bytes": 512_000 // 300,
    }
    assert reader.history(full, "step_time_s_by_round") == [(0, 0.25), (1, 0.265625), (2, 0.28125)]
    series = reader.history(full, "live_bytes")
    assert (300, 512_000.0) in series
    assert len(series) <= 120
    cell = full.data.tags["suite.cell"]
    names = [
        f"{cell}-{p}" for p in ("flops-000", "memory-000", "parity-000", "time-000", "time-001", "time-002")
    ]
    assert sorted(reader.artifacts(full, "records")) == [f"{name}.json" for name in names]
    # The FLOPs pass printed nothing.
    assert sorted(reader.artifacts(full, "logs")) == [f"{name}.log" for name in names[1:]]

    assert children["none"].info.status == "FINISHED"
    assert children["none"].data.tags["suite.status"] == "oom"
    crashed = children["segments(n=sqrt)"]
    assert crashed.info.status == "FAILED"
    assert crashed.data.tags["mlflow.note.content"] == "**crash**: ended crash"


def test_a_resumed_sweep_keeps_its_runs_and_leaves_alone_what_is_there(backend: Backend) -> None:
    sweep = small_sweep(backend.records)
    mirror(backend, sweep, state="interrupted")
    reader = Reader(backend)
    assert reader.parent().info.status == "KILLED"
    before = {r.info.run_id: r.to_dictionary() for r in reader.children().values()}

    mirror(backend, sweep)
    after = {r.info.run_id: r.to_dictionary() for r in reader.children().values()}
    assert after == before
    assert reader.parent().info.status == "FINISHED"
    full = reader.children()["full(early_stop=true)"]
    assert len(reader.history(full, "peak_bytes")) == 1


def test_a_cell_with_new_records_updates_its_run(backend: Backend) -> None:
    sweep = small_sweep(backend.records)
    mirror(backend, sweep)
    reader = Reader(backend)
    before = reader.children()

    none, _, segments = sweep.cells
    sweep.write(none, "time", 3)
    sweep.measure(segments)
    mirror(backend, sweep)
    after = reader.children()
    assert {p: r.info.run_id for p, r in after.items()} == {p: r.info.run_id for p, r in before.items()}
    assert after["none"].data.metrics["step_time_s"] == 0.2734375
    assert reader.history(after["none"], "step_time_s_by_round")[-1] == (3, 0.296875)
    assert len(reader.history(after["none"], "live_bytes")) == len(
        reader.history(before["none"], "live_bytes")
    )
    assert before["segments(n=sqrt)"].info.status == "FAILED"
    assert after["segments(n=sqrt)"].info.status == "FINISHED"
    assert after["segments(n=sqrt)"].data.tags["suite.status"] == "ok"
    assert after["segments(n=sqrt)"].data.metrics["peak_bytes"] == 2 * 2 * 1000 * 512


def test_a_series_measured_again_never_mixes_with_the_old_one(backend: Backend) -> None:
    sweep = small_sweep(backend.records)
    mirror(backend, sweep)
    reader = Reader(backend)
    before = reader.children()["none"]
    figures = {"step_time_s": 1.0, "tokens_per_s": 1024.0, "steps_count": 5}
    sweep.write(sweep.cells[0], "time", 1, figures=figures)
    mirror(backend, sweep)
    after = reader.children()["none"]
    assert reader.history(after, "step_time_s_by_round") == [(0, 0.25), (1, 1.0), (2, 0.28125)]
    assert after.info.run_id != before.info.run_id
    deleted = [r.info.run_id for r in reader.runs(ViewType.DELETED_ONLY)]
    assert deleted == [before.info.run_id]


def test_a_better_peak_rate_that_another_cell_measured_lowers_the_mfu(backend: Backend) -> None:
    sweep = small_sweep(backend.records)
    mirror(backend, sweep)
    reader = Reader(backend)
    before = reader.children()["none"].data.metrics["mfu_ratio"]
    figures = {"step_time_s": 1.0, "tokens_per_s": 1.0, "steps_count": 5, "peak_flops_per_s": 2e11}
    sweep.write(sweep.cells[1], "time", 1, figures=figures)
    mirror(backend, sweep)
    assert reader.children()["none"].data.metrics["mfu_ratio"] == before / 2


def test_a_sweep_begun_anew_has_a_parent_of_its_own(backend: Backend) -> None:
    mirror(backend, small_sweep(backend.records))
    mirror(backend, small_sweep(backend.records, created_at="2026-03-02T08:00:00+00:00"))
    parents = [r for r in Reader(backend).runs() if r.data.tags["suite.kind"] == "sweep"]
    assert [p.info.run_name for p in parents] == ["long_seq"] * 2


def test_a_run_deleted_in_the_ui_comes_back_on_the_next_change(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = small_sweep(backend.records)
    tracker = open_tracker(backend.tracking, backend.paths)
    tracker.open(sweep.manifest())
    for summary in sweep.summaries().values():
        tracker.cell(summary, sweep.store)
    reader = Reader(backend)
    reader.client.delete_run(reader.children()["none"].info.run_id)
    sweep.write(sweep.cells[0], "time", 3)
    tracker.cell(sweep.summaries()[sweep.cells[0].id], sweep.store)
    assert tracker.pending == 1
    assert [r.getMessage()[:29] for r in caplog.records] == [
        "MLflow did not take cell " + sweep.cells[0].id[:4]
    ]
    # It does not hold up the others.
    sweep.write(sweep.cells[1], "time", 3)
    tracker.cell(sweep.summaries()[sweep.cells[1].id], sweep.store)
    assert tracker.pending == 1
    tracker.close(sweep.manifest("finished"), None)
    assert tracker.pending == 0
    assert len(reader.history(reader.children()["none"], "step_time_s_by_round")) == 4


def test_names_of_any_kind(backend: Backend) -> None:
    name = """Schläfer's "10 %" \\ 夜; DROP TABLE runs -- \udce4"""
    sweep = Sweep(RecordStore(backend.records / "odd"), name)
    options = {"list": ["ä`'\"", "x" * 9000], "sp ace/é": "<b>$(rm)</b>"}
    sweep.measure(cell_of("ops", options, model="🦙 [mini](x)"))
    sweep.write(
        sweep.cells[0], "time", 3, "crash", error={"type": "E", "message": "nul \0 \udcff", "where": ""}
    )
    mirror(backend, sweep)
    reader = Reader(backend)
    assert reader.parent().info.run_name == name.replace("\udce4", "\\udce4")
    (child,) = reader.children().values()
    assert child.data.params["policy.list"].startswith("""['ä`\\'"', 'xxx""")
    assert child.data.params["policy.sp_ace__"] == "<b>$(rm)</b>"
    assert child.data.params["model.name"] == "🦙 [mini](x)"
    assert child.data.tags["suite.reason"] == "nul \\0 \\udcff"
    mirror(backend, sweep)
    assert len(reader.runs()) == 2


def test_a_sweep_of_more_cells_than_one_page_of_a_search(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suite.tracking.mlflow_sweep._PAGE", 2)
    sweep = Sweep(RecordStore(backend.records / "many"), "many")
    for n in range(5):
        sweep.write(cell_of("segments", {"n": n}), "memory")
    mirror(backend, sweep)
    mirror(backend, sweep)
    assert len(Reader(backend).children()) == 5

"""``python -m analysis``: verbs, exit codes, and what is never imported."""

import subprocess
import sys
from pathlib import Path

import sweep_builder as build

from analysis.sync import sync_run

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def small_sweep(root: Path) -> Path:
    cells = [build.cell("none"), build.cell("full"), build.cell("blocks")]
    records = [r for c in cells[:2] for r in (build.memory(c, 9e7, 5e7), build.time(c, 0.1))]
    return build.store(root / "small", records, build.manifest(cells, name="small")).root


def test_report_prints_where_it_wrote(tmp_path):
    done = run("-m", "analysis", "report", str(small_sweep(tmp_path)), "--out", str(tmp_path / "out"))
    assert done.returncode == 0
    answer, page = done.stdout.splitlines()
    assert page == str(tmp_path / "out" / "index.html")
    assert answer in (tmp_path / "out" / "report.md").read_text()
    assert (tmp_path / "out" / "index.html").is_file()


def test_bad_input_is_one_line_and_exit_code_2(tmp_path):
    nowhere = tmp_path / "nowhere"
    done = run("-m", "analysis", "report", str(nowhere))
    assert done.returncode == 2
    assert done.stdout == ""
    allowed = "expected the folder of a sweep, with sweep.json and records/"
    assert done.stderr == f"error: run_dir={nowhere}: {allowed}\n"


def test_a_folder_that_cannot_be_written_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").touch()
    done = run(
        "-m", "analysis", "report", str(small_sweep(tmp_path)), "--out", str(tmp_path / "file" / "x")
    )
    assert done.returncode == 2
    out = tmp_path / "file" / "x"
    assert done.stderr == f"error: --out={out}: expected a folder that can be written: Not a directory\n"


def test_a_damaged_record_is_one_line_on_the_terminal(tmp_path):
    root = small_sweep(tmp_path)
    torn, *_ = sorted((root / "records").glob("*time*"))
    torn.write_text("{")
    done = run("-m", "analysis", "report", str(root), "--out", str(tmp_path / "out"))
    assert done.returncode == 0
    assert done.stderr.startswith(f"warning: no record, and left out: {torn.name}: not JSON")
    assert len(done.stderr.splitlines()) == 1


def test_torch_is_never_imported(tmp_path):
    code = (
        "import sys; from pathlib import Path; from analysis.report import write_report; "
        "write_report(Path(sys.argv[1]), Path(sys.argv[2])); "
        "print(sorted({'torch', 'lightning', 'mlflow'} & sys.modules.keys()))"
    )
    done = run("-c", code, str(small_sweep(tmp_path)), str(tmp_path / "out"))
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_sync_rebuilds_the_mirror_and_repeats_without_copies(tmp_path):
    from mlflow import MlflowClient

    folder = small_sweep(tmp_path)
    for _ in range(2):
        assert sync_run(folder).startswith("2 cells\n")
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (experiment,) = [e for e in client.search_experiments() if e.name == "recompute-suite"]
    runs = client.search_runs([experiment.experiment_id])
    kinds = sorted(run.data.tags["suite.kind"] for run in runs)
    assert kinds == ["cell", "cell", "sweep"]
    assert {run.data.tags.get("suite.policy") for run in runs} >= {"none", "full"}

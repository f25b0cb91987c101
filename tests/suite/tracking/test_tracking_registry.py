import dataclasses
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tracking_builders import small_sweep

from suite.config.schema import PathsConfig, TrackingConfig
from suite.errors import UsageError
from suite.tracking import TRACKERS, open_tracker

ROOT = Path(__file__).parents[3]


def test_trackers_are_named_as_their_configuration_files() -> None:
    files = {path.stem: path for path in (ROOT / "conf" / "tracking").glob("*.yaml")}
    assert files.keys() == TRACKERS.keys()
    for name, path in files.items():
        config = TrackingConfig(**yaml.safe_load(path.read_text()))
        assert config == dataclasses.replace(TrackingConfig(), kind=name)


def test_an_unknown_kind_names_those_that_exist() -> None:
    with pytest.raises(UsageError, match=r"^tracking\.kind=wandb: expected one of mlflow, none$"):
        open_tracker(TrackingConfig(kind="wandb"), PathsConfig())


def test_none_does_nothing(tmp_path: Path) -> None:
    sweep = small_sweep(tmp_path / "runs")
    tracker = open_tracker(TrackingConfig(kind="none"), PathsConfig(str(tmp_path / "mlruns")))
    tracker.open(sweep.manifest())
    for summary in sweep.summaries().values():
        tracker.cell(summary, sweep.store)
    tracker.close(sweep.manifest("finished"), None)
    assert tracker.pending == 0
    assert tracker.where() == "not tracked (tracking=none)"
    assert not (tmp_path / "mlruns").exists()


WITHOUT_MLFLOW = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mlflow", "torch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
from suite.config.schema import PathsConfig, TrackingConfig
from suite.errors import UsageError
from suite.tracking import open_tracker

none = open_tracker(TrackingConfig(kind="none"), PathsConfig(sys.argv[1]))
none.open({"name": "x"})
none.close({"name": "x", "state": "finished"}, None)
try:
    open_tracker(TrackingConfig(), PathsConfig(sys.argv[1])).open({"name": "x"})
except UsageError as problem:
    print(problem)
"""


def test_none_needs_no_mlflow_and_mlflow_says_what_it_needs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MLFLOW, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (
        "tracking.kind=mlflow: needs the module mlflow: pip install mlflow, or use tracking=none\n"
    )


def test_the_command_that_opens_a_database_can_be_pasted(tmp_path: Path) -> None:
    tracker = open_tracker(TrackingConfig(), PathsConfig(str(tmp_path / "my runs")))
    uri, command = tracker.where().splitlines()
    assert uri == f"sqlite:///{tmp_path}/my runs/mlflow.db"
    program, *arguments = shlex.split(command)
    assert shutil.which(program)
    assert arguments == ["ui", "--backend-store-uri", uri, "--host", "127.0.0.1"]


def test_a_password_is_never_shown() -> None:
    tracker = open_tracker(TrackingConfig(uri="https://me:s3cret@mlflow.example:8443/x/"), PathsConfig())
    assert tracker.where() == "https://me:***@mlflow.example:8443/x/"

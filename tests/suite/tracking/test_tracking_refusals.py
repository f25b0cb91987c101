"""A store that cannot be used is refused in one line, quickly, before anything starts."""

import os
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient
from tracking_builders import small_sweep

from suite.config.schema import PathsConfig, TrackingConfig
from suite.errors import UsageError
from suite.tracking import check_tracking, open_tracker


def refusal(
    tmp_path: Path, uri: str = "", *, runs: Path | None = None, experiment: str = "x"
) -> UsageError:
    tracker = open_tracker(
        TrackingConfig("mlflow", uri, experiment), PathsConfig(str(runs or tmp_path / "runs"))
    )
    began_s = time.monotonic()
    with pytest.raises(UsageError) as caught:
        tracker.open(small_sweep(tmp_path / "records").manifest())
    assert time.monotonic() - began_s < 10
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.fixture
def unused_port() -> Iterator[int]:
    """Bound and not listening: a connection is refused, and nobody else can take it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_nobody_listens(tmp_path: Path, unused_port: int) -> None:
    error = refusal(tmp_path, f"http://127.0.0.1:{unused_port}")
    assert error.key == "tracking.uri"
    assert "Connection refused" in str(error)


def test_a_password_is_not_shown(tmp_path: Path, unused_port: int) -> None:
    error = refusal(tmp_path, f"http://me:s3cret@127.0.0.1:{unused_port}")
    assert error.value == f"http://me:***@127.0.0.1:{unused_port}"
    assert "s3cret" not in str(error)


def test_a_host_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = refusal(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert error.key == "tracking.uri"
    assert "timed out" in str(error)


def test_no_such_kind_of_store(tmp_path: Path) -> None:
    error = refusal(tmp_path, "carrier-pigeon://loft")
    assert (error.key, error.value) == ("tracking.uri", "carrier-pigeon://loft")


def test_a_store_that_cannot_be_is_refused_without_opening_any() -> None:
    with pytest.raises(
        UsageError, match=r"^tracking\.uri=foo://…: MLflow has no store for foo://"
    ) as caught:
        check_tracking(TrackingConfig(uri="foo://me:s3cret@bar"))
    assert "s3cret" not in str(caught.value)
    with pytest.raises(UsageError, match=r"^tracking\.kind=paper: expected one of mlflow, none"):
        check_tracking(TrackingConfig(kind="paper"))
    for uri in (
        "",
        "runs/mlruns",
        "sqlite:///x.db",
        "https://host",
        "mysql+pymysql://host/db",
        "databricks",
    ):
        check_tracking(TrackingConfig(uri=uri))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = refusal(tmp_path, runs=tmp_path / "file" / "runs")
    assert (error.key, error.value) == ("paths.runs", tmp_path / "file" / "runs")
    uri = f"sqlite:///{tmp_path}/file/x.db"
    error = refusal(tmp_path, uri)
    assert (error.key, error.value) == ("tracking.uri", uri)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    error = refusal(tmp_path, runs=locked)
    assert error.key == "paths.runs"
    assert "Permission denied" in str(error)


@pytest.mark.parametrize(
    "uri", ["sqlite:///", "sqlite:///:memory:", "sqlite:///x.db?mode=ro", "sqlite:///a%20b/x.db"]
)
def test_a_database_that_is_no_file(tmp_path: Path, uri: str) -> None:
    assert (refusal(tmp_path, uri).key, refusal(tmp_path, uri).value) == ("tracking.uri", uri)


def test_a_database_file_that_cannot_be_opened(tmp_path: Path) -> None:
    # MLflow itself tries for 100 s.
    (tmp_path / "runs" / "mlflow.db").mkdir(parents=True)
    assert "unable to open database file" in str(refusal(tmp_path))


def test_a_database_server_that_is_not_there_or_has_no_driver(tmp_path: Path) -> None:
    error = refusal(tmp_path, "postgresql://me:s3cret@127.0.0.1:1/x")
    assert error.value == "postgresql://me:***@127.0.0.1:1/x"
    assert "s3cret" not in str(error)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mlflow.db").write_text("not a database, but long enough to look like none" * 40)
    assert "file is not a database" in str(refusal(tmp_path))


def test_a_database_of_another_mlflow_names_the_command_that_upgrades_it(tmp_path: Path) -> None:
    open_tracker(TrackingConfig(), PathsConfig(str(tmp_path / "runs"))).open(
        small_sweep(tmp_path / "r").manifest()
    )
    with sqlite3.connect(tmp_path / "runs" / "mlflow.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
    copy = tmp_path / "copy.db"
    copy.write_bytes((tmp_path / "runs" / "mlflow.db").read_bytes())
    assert "mlflow db upgrade" in str(refusal(tmp_path, f"sqlite:///{copy}"))


def test_a_deleted_experiment_and_a_name_that_cannot_be_one(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    tracker = open_tracker(TrackingConfig(experiment="gone"), PathsConfig(str(runs)))
    tracker.open(small_sweep(tmp_path / "r").manifest())
    client = MlflowClient(f"sqlite:///{runs}/mlflow.db")
    experiment = client.get_experiment_by_name("gone")
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    error = refusal(tmp_path, experiment="gone")
    assert error.key == "tracking.experiment"
    assert f"mlflow experiments restore --experiment-id {experiment.experiment_id}" in str(error)
    assert refusal(tmp_path, experiment="x" * 501).key == "tracking.experiment"
    assert refusal(tmp_path, experiment="").key == "tracking.experiment"

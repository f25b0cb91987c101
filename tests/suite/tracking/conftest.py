import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.orm import configure_mappers
from tracking_stores import Backend, Server

from suite.config.schema import PathsConfig, TrackingConfig
from suite.tracking.mlflow_store import quiet


@pytest.fixture(scope="session", autouse=True)
def _mappers() -> None:
    """Let the tests read stores: MLflow's tables warn of a deprecation once, when first used."""
    import mlflow.store.db.utils  # noqa: F401

    with quiet():
        configure_mappers()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server(tmp_path_factory.mktemp("server"), port)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def shared_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs #1 ü")


@pytest.fixture(params=["sqlite", "server"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, shared_runs: Path) -> Backend:
    """The default store, and a server; each test has an experiment and a folder of records of its own."""
    uri = request.getfixturevalue("server").uri if request.param == "server" else ""
    experiment = f"{request.node.name} {tmp_path.name}"
    return Backend(TrackingConfig("mlflow", uri, experiment), PathsConfig(str(shared_runs)), tmp_path)

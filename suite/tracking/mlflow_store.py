"""Which MLflow store is used, reaching it, and telling people how to look into it."""

import fcntl
import logging
import os
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from suite.config.schema import PathsConfig, TrackingConfig
from suite.errors import UsageError

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

# Read by MLflow, some at import and some at each call; whoever sets them outside knows better.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "8",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT": "8",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}

_EXPECTED = (
    "expected sqlite:///<file>, http(s)://<server> or another MLflow store; tracking=none does without"
)

# Without it the UI takes the experiment for one of prompts and traces, and hides the runs.
_KIND = "custom_model_development"

_SQLITE = "sqlite:///"


@dataclass(frozen=True)
class MlflowStore:
    """A tracking store and the experiment in it. ``key``: the configuration key that chose it."""

    uri: str
    experiment: str
    artifact_root: Path
    key: str

    @classmethod
    def of(cls, config: TrackingConfig, paths: PathsConfig) -> "MlflowStore":
        """The store that the configuration names: ``mlflow.db`` under ``paths.runs`` by default."""
        runs = Path(paths.runs).absolute()
        return cls(
            uri=config.uri or f"{_SQLITE}{runs / 'mlflow.db'}",
            experiment=config.experiment,
            artifact_root=runs / "mlflow-artifacts",
            key="tracking.uri" if config.uri else "paths.runs",
        )

    @property
    def is_server(self) -> bool:
        """Reached by HTTP, so that artifacts are the server's business."""
        return self.uri.startswith(("http://", "https://"))

    @property
    def shown(self) -> str:
        """The URI without a password."""
        return re.sub(r"(://[^/:@]*):[^/@]*@", r"\1:***@", self.uri)

    def refuse(self, problem: Exception) -> UsageError:
        """The one line for a store that cannot be used because of ``problem``."""
        why = reason(problem).replace(self.uri, self.shown)
        return UsageError("tracking.uri", self.shown, f"cannot be used ({why}); {_EXPECTED}")

    def connect(self) -> "tuple[MlflowClient, str]":
        """A client and the experiment's id. Creates folder, database and experiment where they lack.

        Raises UsageError, or what MLflow raises.
        """
        client_type = _import_client()
        with self._creation_lock():
            if not self.is_server:
                self._connect_once()
            client = client_type(tracking_uri=self.uri, registry_uri=self.uri)
            return client, self._experiment_id(client)

    def _connect_once(self) -> None:
        """Fail at once where MLflow would try again and again for 100 s, with a line each time."""
        import sqlalchemy

        try:
            engine = sqlalchemy.create_engine(self.uri)
        except sqlalchemy.exc.ArgumentError:
            return  # no database: another kind of store, or MLflow's to refuse
        try:
            engine.connect().close()
        finally:
            engine.dispose()

    @contextmanager
    def _creation_lock(self) -> Iterator[None]:
        """One process at a time makes the database: several would meet in the middle of its migration."""
        if not self.uri.startswith(_SQLITE):
            yield
            return
        file = self.uri.removeprefix(_SQLITE)
        path = Path(file).absolute()
        shown = self.shown if self.key == "tracking.uri" else path.parent
        if file in ("", ":memory:") or set(file) & set("?%"):
            # What % means in the URI of a database depends on SQLAlchemy's version.
            raise UsageError(
                self.key, shown, "expected a file for the sqlite database, without ? or % in its path"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.with_name(f".{path.name}.lock").open("w")
        except OSError as problem:
            raise UsageError(
                self.key,
                shown,
                f"no folder that can be written to ({problem.strerror}); name another, or tracking=none",
            ) from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _experiment_id(self, client: "MlflowClient") -> str:
        from mlflow.exceptions import MlflowException

        try:
            found = client.get_experiment_by_name(self.experiment)
            if found is None:
                location = None if self.is_server else self.artifact_root.as_uri()
                tags = {"mlflow.experimentKind": _KIND}
                return str(client.create_experiment(self.experiment, artifact_location=location, tags=tags))
        except MlflowException as problem:
            # Another sweep that starts at this moment may have been first.
            found = client.get_experiment_by_name(self.experiment) if _exists(problem) else None
            if found is None and problem.error_code == "INVALID_PARAMETER_VALUE":
                raise UsageError("tracking.experiment", self.experiment, reason(problem)) from None
            if found is None:
                raise
        if found.lifecycle_stage != "active":
            raise UsageError(
                "tracking.experiment",
                self.experiment,
                "is deleted in this store: name another, or "
                f"`mlflow experiments restore --experiment-id {found.experiment_id}`",
            )
        return str(found.experiment_id)

    def where(self, experiment_id: str | None = None) -> str:
        """The store's address, for a database the command that opens the UI, and the experiment's page.

        The page is short and plain, so that a terminal takes all of it for the link.
        """
        ui = self.shown.rstrip("/") if self.is_server else "http://127.0.0.1:5000"
        lines = [f"{ui}/#/experiments/{experiment_id}"] if experiment_id else []
        if not self.is_server:
            command = [_mlflow_command(), "ui", "--backend-store-uri", self.shown, "--host", "127.0.0.1"]
            lines.insert(0, shlex.join(command))
        return "\n".join([self.shown, *lines])


def reason(problem: BaseException) -> str:
    """One line on why a call failed: what the operating system said if it did, else MLflow's first line."""
    root = problem
    while (deeper := root.__cause__ or root.__context__) is not None:
        root = deeper
    said = root if isinstance(root, OSError) else problem
    return (str(said).strip() or type(said).__name__).splitlines()[0][:300]


def _exists(problem: Exception) -> bool:
    return getattr(problem, "error_code", "") == "RESOURCE_ALREADY_EXISTS"


def _import_client() -> "type[MlflowClient]":
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow.tracking import MlflowClient
    except ModuleNotFoundError as problem:
        raise UsageError(
            "tracking.kind",
            "mlflow",
            f"needs the module {problem.name}: pip install mlflow, or use tracking=none",
        ) from None
    return MlflowClient


@contextmanager
def quiet() -> Iterator[None]:
    """Keep from people what MLflow and the libraries under it say to their developers."""
    creating = logging.getLogger("mlflow.store.db.utils")
    level = creating.level
    creating.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            # MLflow's queries use a loader that SQLAlchemy 2.1 deprecates.
            warnings.filterwarnings("ignore", message="The ``noload``", category=DeprecationWarning)
            yield
    finally:
        creating.setLevel(level)


def _mlflow_command() -> str:
    """The program of this environment, as short as the current folder and PATH allow."""
    program = Path(sys.executable).with_name("mlflow")
    found = shutil.which("mlflow")
    if not program.exists() or (found and Path(found) == program):
        return "mlflow"
    return str(program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program)

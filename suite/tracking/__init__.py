"""Mirrors of the records in tracking systems, each named as its file in ``conf/tracking/``."""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points

from suite.config.schema import PathsConfig, TrackingConfig
from suite.errors import UsageError
from suite.tracking.base import Tracker

__all__ = ["TRACKERS", "Tracker", "check_tracking", "open_tracker"]

# As text, so that naming a tracker does not import the system behind the others.
TRACKERS = {
    "mlflow": "suite.tracking.mlflow:MlflowTracker",
    "none": "suite.tracking.none:NoTracker",
}


# What MLflow takes before ``://``, besides paths and what plug-ins bring.
_SCHEMES = ("sqlite", "http", "https", "file", "postgresql", "mysql", "mssql", "databricks")


def check_tracking(config: TrackingConfig) -> None:
    """Raise :class:`UsageError` where no tracker could be opened, without opening one."""
    _check_kind(config)
    scheme, found, _ = config.uri.partition("://")
    if not found or config.kind != "mlflow":
        return
    plugins = {entry.name for entry in entry_points(group="mlflow.tracking_store")}
    if scheme.partition("+")[0] not in {*_SCHEMES, *plugins}:
        raise UsageError(
            "tracking.uri",
            f"{scheme}://…",  # what follows may hold a password
            f"MLflow has no store for {scheme}://; expected sqlite:///<file>, http(s)://<server> or one of "
            f"{', '.join(_SCHEMES)}; tracking=none does without",
        )


def _check_kind(config: TrackingConfig) -> None:
    if config.kind not in TRACKERS:
        raise UsageError("tracking.kind", config.kind, f"expected one of {', '.join(sorted(TRACKERS))}")


def open_tracker(config: TrackingConfig, paths: PathsConfig) -> Tracker:
    """The tracker of ``config.kind``, not yet connected: :meth:`Tracker.open` does that.

    Raises :class:`UsageError` for a kind that does not exist.
    """
    _check_kind(config)
    module, _, name = TRACKERS[config.kind].partition(":")
    tracker: Callable[[TrackingConfig, PathsConfig], Tracker] = getattr(import_module(module), name)
    return tracker(config, paths)

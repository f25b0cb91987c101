"""Mirrors of the records in tracking systems, each named as its file in ``conf/tracking/``."""

from collections.abc import Callable
from importlib import import_module

from suite.config.schema import PathsConfig, TrackingConfig
from suite.errors import UsageError
from suite.tracking.base import Tracker

__all__ = ["TRACKERS", "Tracker", "open_tracker"]

# As text, so that naming a tracker does not import the system behind the others.
TRACKERS = {
    "mlflow": "suite.tracking.mlflow:MlflowTracker",
    "none": "suite.tracking.none:NoTracker",
}


def open_tracker(config: TrackingConfig, paths: PathsConfig) -> Tracker:
    """The tracker of ``config.kind``, not yet connected: :meth:`Tracker.open` does that.

    Raises :class:`UsageError` for a kind that does not exist.
    """
    if config.kind not in TRACKERS:
        raise UsageError("tracking.kind", config.kind, f"expected one of {', '.join(sorted(TRACKERS))}")
    module, _, name = TRACKERS[config.kind].partition(":")
    tracker: Callable[[TrackingConfig, PathsConfig], Tracker] = getattr(import_module(module), name)
    return tracker(config, paths)

"""Mirror the records of a sweep into a tracker: the records are the truth, the mirror can be rebuilt."""

from pathlib import Path

from analysis.load import NOT_MEASURED, load_run
from suite.config.schema import PathsConfig, TrackingConfig
from suite.errors import UsageError
from suite.store import RecordStore
from suite.tracking import open_tracker


def sync_run(run_dir: Path, uri: str = "", experiment: str = "") -> str:
    """Send every measured cell of ``run_dir`` and return what was sent where.

    Raises :class:`UsageError` if the folder holds no manifest, or if the tracker cannot be reached
    or stopped answering before everything was sent.
    """
    run = load_run(run_dir)
    if not run.manifest:
        raise UsageError("run_dir", run_dir, "has no readable sweep.json to name the sweep by")
    config = TrackingConfig(uri=uri, experiment=experiment or TrackingConfig.experiment)
    tracker = open_tracker(config, PathsConfig(runs=str(run_dir.resolve().parent)))
    tracker.open(run.manifest)
    store = RecordStore(run_dir)
    measured = [cell for cell in run.cells if cell.status != NOT_MEASURED]
    for cell in measured:
        tracker.cell(cell, store)
    tracker.close(run.manifest, None)
    if tracker.pending:
        raise UsageError(
            "tracking.uri", uri, f"{tracker.pending} of {len(measured)} cells could not be sent"
        )
    return f"{len(measured)} cells\n{tracker.where()}"

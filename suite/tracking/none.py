"""``tracking=none``: the records are all there is."""

from pathlib import Path
from typing import Any

from suite.config.schema import PathsConfig, TrackingConfig
from suite.store import RecordStore
from suite.summary import CellSummary


class NoTracker:
    """Mirrors nothing."""

    pending = 0

    def __init__(self, config: TrackingConfig, paths: PathsConfig) -> None:
        del config, paths

    def open(self, manifest: dict[str, Any]) -> None:
        """Nothing to connect to."""

    def cell(self, summary: CellSummary, store: RecordStore) -> None:
        """Nothing to send."""

    def close(self, manifest: dict[str, Any], report_dir: Path | None) -> None:
        """Nothing to end."""

    def where(self) -> str:
        """Says that there is no mirror."""
        return "not tracked (tracking=none)"

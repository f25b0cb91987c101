"""What a mirror of the records must do."""

from pathlib import Path
from typing import Any, Protocol

from suite.store import RecordStore
from suite.summary import CellSummary


class Tracker(Protocol):
    """A mirror of one sweep in a tracking system.

    The records are the truth: whatever a tracker holds can be sent again from them, so only
    :meth:`open` may refuse. It is called by one thread, between children, because work beside a
    timed child would disturb what it measures.
    """

    @property
    def pending(self) -> int:
        """How many cells (and the sweep itself, once closed) could not be sent so far."""
        ...

    def open(self, manifest: dict[str, Any]) -> None:
        """Connect and create or find the sweep of ``manifest`` (``name``, ``created_at``, ``cells``).

        Raises :class:`suite.errors.UsageError` within 10 s if the store cannot be used.
        """
        ...

    def cell(self, summary: CellSummary, store: RecordStore) -> None:
        """Mirror one cell with its records and logs from ``store``; a cell already there is left alone.

        Never raises. What cannot be sent is kept for a later call, :meth:`close` or session.
        """
        ...

    def close(self, manifest: dict[str, Any], report_dir: Path | None) -> None:
        """Send what is pending, the report and the final ``manifest["state"]``. Never raises."""
        ...

    def where(self) -> str:
        """For people, one or more lines: the store, and how to look into it."""
        ...

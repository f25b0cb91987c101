"""What a session shows while it runs: a live table on a terminal, else one plain line per pass."""

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from suite.cell import Cell
from suite.record import Record, RecordKey
from suite.summary import CellSummary, over_budget
from suite.units import show_bytes, show_seconds


@dataclass
class Row:
    """One cell as the live table shows it."""

    policy: str
    workload: str
    status: str = ""
    running: str = ""
    last: str = ""
    peak_bytes: float | None = None
    step_time_s: float | None = None
    reason: str = ""


@dataclass
class Board:
    """The state of a session. ``passes`` counts what this session runs, not what it found done."""

    name: str
    rounds: int
    rows: dict[str, Row]
    pending: set[RecordKey]
    time_left_s: Callable[[], float | None]
    budget_bytes: int | None = None
    done: int = 0
    found: int = 0
    started_s: float = field(default_factory=time.monotonic)

    @property
    def total(self) -> int:
        """Passes run and still to run."""
        return self.done + len(self.pending)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the session began."""
        return time.monotonic() - self.started_s

    def counts(self) -> dict[str, int]:
        """Finished cells by status."""
        statuses = [row.status for row in self.rows.values() if row.status]
        return {status: statuses.count(status) for status in dict.fromkeys(statuses)}

    def pass_label(self, key: RecordKey) -> str:
        """``time 2/3``: the pass, and which round of how many."""
        return f"time {key.round + 1}/{self.rounds}" if key.pass_ == "time" else key.pass_


def new_rows(cells: Sequence[Cell]) -> dict[str, Row]:
    """An empty row per cell, in order."""
    return {cell.id: Row(cell.policy_label, cell.workload_label) for cell in cells}


class Progress:
    """Plain lines, and the bookkeeping that every way of showing shares."""

    tick_s: float | None = None

    def __init__(self, board: Board, out: TextIO | None = None) -> None:
        self.board = board
        self._out = out if out is not None else sys.stdout

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception: object) -> None:
        return

    def started(self, key: RecordKey, place: str) -> None:
        """A child for ``key`` runs at ``place``."""
        where = "" if place == "cpu" else f" {place}"
        self.board.rows[key.cell].running = self.board.pass_label(key) + where
        self._changed()

    def recorded(self, key: RecordKey, record: Record) -> None:
        """The child's record is there."""
        board, row = self.board, self.board.rows[key.cell]
        over = over_budget(record, board.budget_bytes)
        row.running, row.last = "", "oom" if over else record.status
        board.done += 1
        row.peak_bytes = record.figures.get("peak_bytes", row.peak_bytes)
        row.step_time_s = record.figures.get("step_time_s", row.step_time_s)
        self._pass_line(key, record, row, over)
        self._changed()

    def completed(self, summary: CellSummary) -> None:
        """A cell has its verdict."""
        row = self.board.rows[summary.cell]
        row.status, row.reason = summary.status, summary.reason
        row.peak_bytes, row.step_time_s = summary.peak_bytes, summary.step_time_s
        self._cell_line(row)
        self._changed()

    def note(self, text: str) -> None:
        """One line for the person who watches."""
        self._line(text)

    def tick(self) -> None:
        """Time has passed and nothing else."""

    def _pass_line(self, key: RecordKey, record: Record, row: Row, over: str) -> None:
        board = self.board
        left = board.time_left_s()
        parts = [
            f"[{board.done:>{len(str(board.total))}}/{board.total}]",
            f"{row.last:<11}",
            f"{row.policy}, {row.workload}:",
            f"{board.pass_label(key)}{_headline(record, over)} in {show_seconds(record.wall_s)}",
        ]
        if left is not None and board.pending:
            parts.append(f"(about {show_seconds(left)} left)")
        self._line(" ".join(parts))

    def _cell_line(self, row: Row) -> None:
        # The line of its last pass has said it unless the budget, the reference or nobody ran it.
        if row.status not in ("ok", row.last):
            self._line(f"    {row.policy}, {row.workload} is {row.status}: {row.reason}")

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()

    def _changed(self) -> None:
        """For those who draw."""


def _headline(record: Record, over: str) -> str:
    figures: Mapping[str, float] = record.figures
    if over:
        return f": {over}"
    if record.status != "ok" and record.error:
        return f": {record.error['message'].splitlines()[0][:160]}"
    if "step_time_s" in figures:
        return f": {show_seconds(figures['step_time_s'])} a step"
    if "peak_bytes" in figures:
        return f": peak {show_bytes(figures['peak_bytes'])}"
    return ""


def watched(out: TextIO) -> bool:
    """Whether a person looks at a terminal that rich can draw on."""
    capable = out.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return capable and importlib.util.find_spec("rich") is not None


def for_terminal(board: Board) -> Progress:
    """The live table if somebody watches, else plain lines."""
    if watched(sys.stdout):
        from runners.live import LiveProgress

        return LiveProgress(board)
    return Progress(board)

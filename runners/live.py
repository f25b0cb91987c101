"""The live table of a session, drawn by rich."""

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from runners.progress import Board, Progress, Row
from suite.record import Record, RecordKey
from suite.units import show_bytes, show_seconds

STYLES = {
    "ok": "green",
    "ok*": "green",
    "oom": "yellow",
    "noop": "cyan",
    "unsupported": "bright_black",
    "interrupted": "bright_black",
    "invalid": "magenta",
    "wrong": "bold red",
    "crash": "bold red",
    "timeout": "red",
}
# Title, header, the count of hidden rows, statuses and bar around the rows, and the cursor's line.
_FRAME_LINES = 6
_SECOND = 1.0
_STATUS_WIDTH = 18
_NUMBER_WIDTH = 9


class LiveProgress(Progress):
    """Redrawn when something happens and once a second: a thread would take time from the children."""

    tick_s = _SECOND

    def __init__(self, board: Board, console: Console | None = None) -> None:
        super().__init__(board)
        self._console = console or Console()
        self._drawn_s = 0.0
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            get_renderable=self.render,
            transient=True,
        )

    def __enter__(self) -> "LiveProgress":
        self._live.start(refresh=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def tick(self) -> None:
        """Redraw the clock, at most once a second."""
        if time.monotonic() - self._drawn_s >= _SECOND:
            self._changed()

    def render(self) -> RenderableType:
        """The whole picture, cut to the height of the terminal around what runs now."""
        board = self.board
        rows = self._visible(list(board.rows.values()))
        common = _common_words([row.workload for row in board.rows.values()])
        labels = [_without(row.workload, common) for row in rows]
        policy, workload = self._text_widths([row.policy for row in rows], labels)
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
        table.add_column("policy", no_wrap=True, overflow="ellipsis", width=policy)
        table.add_column("workload", no_wrap=True, overflow="ellipsis", width=workload)
        table.add_column("status", no_wrap=True, overflow="ellipsis", width=_STATUS_WIDTH)
        table.add_column("peak", justify="right", no_wrap=True, width=_NUMBER_WIDTH)
        table.add_column("step", justify="right", no_wrap=True, width=_NUMBER_WIDTH)
        for row, label in zip(rows, labels, strict=True):
            table.add_row(row.policy, label, _status(row), _peak(row), _step(row))
        hidden = len(board.rows) - len(rows)
        more = Text(f"… and {hidden} more cells" if hidden else "", style="dim")
        title = Text(f"{board.name}  ", style="bold", no_wrap=True, overflow="ellipsis")
        title.append(" ".join(common), style="dim")
        return Group(title, table, more, self._footer())

    def _text_widths(self, policies: list[str], workloads: list[str]) -> tuple[int, int]:
        """Widths of the two text columns: what they need, or a fair share of what there is."""
        room = self._console.width - _STATUS_WIDTH - 2 * _NUMBER_WIDTH - 4 * 2
        policy = max(len("policy"), *map(len, policies))
        workload = max(len("workload"), *map(len, workloads))
        if policy + workload > room:
            workload = min(workload, max(room * 2 // 5, room - policy))
            policy = min(policy, max(8, room - workload))
        return policy, workload

    def _footer(self) -> RenderableType:
        board, left = self.board, self.board.time_left_s()
        grid = Table.grid(padding=(0, 1))
        grid.add_row(
            ProgressBar(total=max(board.total, 1), completed=board.done, width=24),
            f"{board.done}/{board.total} passes",
            f"{show_seconds(board.elapsed_s)} gone",
            f"about {show_seconds(left)} left" if left is not None and board.pending else "",
        )
        counts = Text()
        for status, count in board.counts().items():
            counts.append(f"{count} {status}  ", style=STYLES.get(status, ""))
        return Group(counts, grid)

    def _visible(self, rows: list[Row]) -> list[Row]:
        room = max(3, self._console.height - _FRAME_LINES)
        if len(rows) <= room:
            return rows
        running = next((i for i, row in enumerate(rows) if row.running), 0)
        first = min(max(0, running - room // 2), len(rows) - room)
        return rows[first : first + room]

    def _pass_line(self, key: RecordKey, record: Record, row: Row, over: str) -> None:
        """The table shows it."""

    def _cell_line(self, row: Row) -> None:
        """The table shows it, and the closing table its reason."""

    def _line(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False)

    def _changed(self) -> None:
        self._drawn_s = time.monotonic()
        self._live.refresh()


def _status(row: Row) -> Text:
    if row.running:
        return Text(f"▸ {row.running}", style="bold")
    return Text(row.status or "·", style=STYLES.get(row.status, "dim"))


def _peak(row: Row) -> str:
    return show_bytes(row.peak_bytes) if row.peak_bytes is not None else ""


def _step(row: Row) -> str:
    return show_seconds(row.step_time_s) if row.step_time_s is not None else ""


def _common_words(labels: list[str]) -> list[str]:
    """What all labels say, in the first one's order: said once, above the table."""
    shared = set.intersection(*(set(label.split()) for label in labels)) if labels else set()
    return [word for word in labels[0].split() if word in shared] if labels else []


def _without(label: str, words: list[str]) -> str:
    return " ".join(word for word in label.split() if word not in words)

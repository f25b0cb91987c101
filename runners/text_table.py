"""A small table: drawn by rich where somebody looks at a terminal, aligned text anywhere else."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TextIO

from runners.progress import watched

# What a long name is wrapped to at least, and what rich puts between two columns.
_READABLE = 20
_GAP = 2


@dataclass(frozen=True)
class TextTable:
    """``left`` is the number of leading columns that are text; the others are numbers.

    ``spare`` heads the columns that a narrow terminal goes without, the first one first.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    spare: Sequence[str] = ()

    def print(self, out: TextIO | None = None) -> None:
        """Write the table to ``out`` (standard output)."""
        stream = out if out is not None else sys.stdout
        if watched(stream):
            self._print_rich(stream)
        else:
            stream.write(self.plain())

    def plain(self) -> str:
        """The table as aligned text, as wide as it needs to be."""
        lines = [list(self.headers), *[list(row) for row in self.rows]]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.headers))]
        text = [
            "  ".join(
                cell.ljust(width) if i < self.left else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, *("  " + line for line in text)]) + "\n"

    def _columns_within(self, width: int) -> list[int]:
        """The columns to show: without spare ones as long as the first has no room to be read."""
        lines = [self.headers, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.headers))]
        widths[0] = min(widths[0], _READABLE)
        shown = list(range(len(widths)))
        for header in self.spare:
            if sum(widths[i] + _GAP for i in shown) <= width:
                break
            shown.remove(list(self.headers).index(header))
        return shown

    def _print_rich(self, out: TextIO) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        from runners.live import STYLES

        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
        console = Console(file=out)
        shown = self._columns_within(console.width)
        for i in shown:
            justify: Literal["left", "right"] = "left" if i < self.left else "right"
            table.add_column(self.headers[i], justify=justify, no_wrap=i > 0)
        for row in self.rows:
            table.add_row(*(Text(row[i], style=STYLES.get(row[i], "")) for i in shown))
        console.print(Text(self.title, style="bold"))
        console.print(table)

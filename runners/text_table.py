"""A small table: drawn by rich where somebody looks at a terminal, aligned text anywhere else."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from runners.progress import watched


@dataclass(frozen=True)
class TextTable:
    """``left`` is the number of leading columns that are text; the others are numbers."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1

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

    def _print_rich(self, out: TextIO) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        from runners.live import STYLES

        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
        for i, header in enumerate(self.headers):
            table.add_column(header, justify="left" if i < self.left else "right", no_wrap=i > 0)
        for row in self.rows:
            table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
        console = Console(file=out)
        console.print(Text(self.title, style="bold"))
        console.print(table)

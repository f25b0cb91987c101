"""The claims as a table for the terminal and for reports."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from analysis.claims import judge
from analysis.load import load_run

_STYLES = {
    "holds": "green",
    "in part": "yellow",
    "not here": "red",
    "too noisy": "magenta",
    "not measured": "dim",
}


def print_claims(run_dir: Path) -> None:
    """Print every claim with its judgement. Raises UsageError if ``run_dir`` is no sweep's folder."""
    run = load_run(run_dir)
    table = Table(show_lines=True, expand=True)
    for head, ratio in (("claim", 3), ("expected", 2), ("measured", 5), ("verdict", 1), ("why", 4)):
        table.add_column(head, ratio=ratio, overflow="fold")
    for claim, found in judge(run.cells):
        style = _STYLES[found.verdict]
        verdict = f"[{style}]{found.verdict}[/{style}]"
        statement = f"{claim.statement} [dim]({claim.source})[/dim]"
        table.add_row(statement, claim.expected, found.measured, verdict, found.why)
    Console().print(table)

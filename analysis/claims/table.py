"""The claims as a table: in the terminal, and in the report of a sweep that is about them."""

from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from analysis.claims import Claim, Judgement, judge
from analysis.claims.finding import HOLDS, IN_PART, NOT_HERE, NOT_MEASURED, TOO_NOISY
from analysis.load import RunData, load_run
from analysis.tables import Entry, Line, Table

# Verdict to its colour in the terminal, and to the status whose looks it has in the report.
_STYLES = {
    HOLDS: ("green", "ok"),
    IN_PART: ("yellow", "noop"),
    NOT_HERE: ("red", "wrong"),
    TOO_NOISY: ("magenta", "invalid"),
    NOT_MEASURED: ("dim", "not measured"),
}
_HEADS = ("Claim", "Source", "Expected", "Measured", "Verdict", "Why")


def about_claims(run: RunData) -> bool:
    """Whether the sweep is ``+sweep=claims``, with or without axes of the user's own."""
    return run.name.split("-")[0] == "claims"


def claims_table(run: RunData) -> Table:
    """One line per claim."""
    lines = []
    for claim, found in judge(run.cells):
        _, status = _STYLES[found.verdict]
        entries = (
            Entry(claim.statement),
            Entry(claim.source, style="words"),
            Entry(claim.expected, style="words"),
            Entry(found.measured or "-", style="words"),
            Entry(found.verdict, style=f"status {status.replace(' ', '-')}"),
            Entry(found.why, style="words"),
        )
        lines.append(Line("ok", (), entries))
    return Table(tuple((head, "") for head in _HEADS), tuple(lines))


def claims_sentence(found: list[tuple[Claim, Judgement]]) -> str:
    """``Of 7 claims about recomputation on this device: 4 hold, 2 in part, 1 not here.``."""
    counts = Counter(judgement.verdict for _, judgement in found)
    words = {HOLDS: "hold"}
    parts = [f"{counts[verdict]} {words.get(verdict, verdict)}" for verdict in _STYLES if counts[verdict]]
    return f"Of {len(found)} claims about recomputation on this device: {', '.join(parts)}."


def print_claims(run_dir: Path) -> None:
    """Print every claim with its judgement. Raises UsageError if ``run_dir`` is no sweep's folder."""
    run = load_run(run_dir)
    table = RichTable(show_lines=True, expand=True)
    for head, ratio in zip(_HEADS, (3, 2, 2, 5, 1, 4), strict=True):
        table.add_column(head.lower(), ratio=ratio, overflow="fold")
    for claim, found in judge(run.cells):
        colour, _ = _STYLES[found.verdict]
        verdict = f"[{colour}]{found.verdict}[/{colour}]"
        words = (claim.statement, claim.source, claim.expected, found.measured)
        table.add_row(*map(escape, words), verdict, escape(found.why))
    Console().print(table)

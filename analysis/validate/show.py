"""The verb: read the rows, ask the predictor, show the tables, write them where they are wanted."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from analysis.predictor import PredictMany, Predictors
from analysis.validate.case import Case
from analysis.validate.report import Report, Sheet, counts_sentence, json_of, sheets_of
from analysis.validate.rows import read_rows
from analysis.validate.score import score_cases
from analysis.validate.sources import outcomes_of

_UNLIMITED = 240
_NOTE = (
    "Errors are of the predicted figure against the published one: percent of it, or points of a ratio. "
    "Nothing is fitted to these rows; halves A and B are fixed by a hash of the row. "
    "A reserved figure is right anywhere in the predicted interval."
)


@dataclass(frozen=True)
class Choice:
    """What of it all, and where to.

    Attributes:
        source: one source alone; empty for all.
        limit: at most so many figures, spread over all of them; 0 for all.
        jobs: predictor processes; 0 for one a core.
        worst: how many of the worst rows to list.
    """

    source: str = ""
    limit: int = 0
    jobs: int = 0
    worst: int = 15
    verbose: bool = False
    json: Path | None = None
    markdown: Path | None = None


def show_validation(choice: Choice, predict: PredictMany | None = None) -> None:
    """Print the report, and write it as JSON and Markdown where asked.

    ``predict`` stands in for the child processes. Raises UsageError on an unknown source and if the
    predictor cannot be started.
    """
    outcomes = outcomes_of(read_rows(), choice.source)
    cases = _spread_out([o for o in outcomes if isinstance(o, Case)], choice.limit)
    ours: AbstractContextManager[PredictMany] = nullcontext(predict) if predict else Predictors(choice.jobs)
    # Progress is not what is asked for: it stays out of a file that stdout goes to.
    columns = (TextColumn("predicting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    errors = Console(stderr=True)
    with ours as many, Bar(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("predicting")
        scores = score_cases(cases, many, lambda done, of: bar.update(task, completed=done, total=of))
    report = Report(outcomes, scores)
    sheets = sheets_of(report, worst=choice.worst, verbose=choice.verbose)
    _print(report, sheets)
    if choice.json:
        _write(choice.json, json.dumps(json_of(report), indent=1, allow_nan=False) + "\n")
    if choice.markdown:
        _write(choice.markdown, markdown_of(report, sheets))


def markdown_of(report: Report, sheets: Sequence[Sheet]) -> str:
    """The same tables for a page."""
    parts = ["# Predictions against published measurements", "", counts_sentence(report), "", _NOTE, ""]
    for sheet in sheets:
        rules = ["---:" if head.startswith(">") else "---" for head in sheet.heads]
        lines = [[head.removeprefix(">") for head in sheet.heads], rules, *sheet.lines]
        parts += [f"## {sheet.title}", "", *(f"| {' | '.join(map(_cell, line))} |" for line in lines), ""]
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def _spread_out(cases: Sequence[Case], limit: int) -> list[Case]:
    if not limit or limit >= len(cases):
        return list(cases)
    return [cases[i * len(cases) // limit] for i in range(limit)]


def _print(report: Report, sheets: Sequence[Sheet]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_UNLIMITED)
    console.print(Text(counts_sentence(report), style="bold"))
    console.print(Text(_NOTE, style="dim"))
    for sheet in sheets:
        options: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "pad_edge": False}
        table = Table(title=sheet.title, box=box.SIMPLE_HEAD, **options)
        for head in sheet.heads:
            number = head.startswith(">")
            table.add_column(
                head.removeprefix(">"),
                justify="right" if number else "left",
                no_wrap=number,
                overflow="fold",
            )
        for line in sheet.lines:
            table.add_row(*map(Text, line))
        console.print(table)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")

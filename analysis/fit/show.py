"""The verb: read the question, ask the predictor, show the answer, write it where it is wanted."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from analysis.fit.ask import Fit, answer_fit
from analysis.fit.page import html_of
from analysis.fit.question import MOST, question_of
from analysis.fit.tables import Assumption, assumptions_of, heads_of, json_of, lines_of, workload_of_fit
from analysis.fit.words import lead_of
from analysis.predictor import PredictMany, Predictors
from analysis.report import escape_markdown
from suite.errors import UsageError
from suite.store import write_atomic

_UNLIMITED = 240


@dataclass(frozen=True)
class Choice:
    """The command line, as it was typed.

    Attributes:
        seq_len: 0: the model's own context.
        step: 0: 128 tokens, one sequence, one block.
        jobs: predictor processes; 0 for one a core.
    """

    model: str
    hardware: str
    policies: tuple[str, ...] = ()
    vary: str = "seq_len"
    seq_len: int = 0
    batch_size: int = 1
    precision: str = "bf16-mixed"
    attention: str = "sdpa"
    optimizer: str = "adamw"
    impl: str = "fused"
    budget: str = ""
    parallel: str = ""
    assume: tuple[str, ...] = ()
    step: int = 0
    most: int = MOST
    jobs: int = 0
    json: Path | None = None
    html: Path | None = None
    markdown: Path | None = None


def show_fit(choice: Choice, predict: PredictMany | None = None) -> bool:
    """Print what fits, and write it where asked; whether anything does.

    ``predict`` stands in for the child processes. Raises UsageError on bad input, if a file cannot be
    written, and if the predictor cannot be started.
    """
    overrides = {
        "model": choice.model,
        "seq_len": choice.seq_len,
        "batch_size": choice.batch_size,
        "precision": choice.precision,
        "attention": choice.attention,
        "optimizer": choice.optimizer,
        "optimizer.impl": choice.impl,
    }
    question = question_of(
        overrides,
        hardware=choice.hardware,
        policies=choice.policies,
        vary=choice.vary,
        step=choice.step,
        most=choice.most,
        budget=choice.budget,
        parallel=choice.parallel,
        assume=choice.assume,
    )
    ours: AbstractContextManager[PredictMany] = nullcontext(predict) if predict else Predictors(choice.jobs)
    # Progress is not what is asked for: it stays out of a file that stdout goes to.
    columns = (TextColumn("predicting"), BarColumn(), MofNCompleteColumn())
    errors = Console(stderr=True)
    with ours as many, Bar(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("predicting", total=len(question.policies))
        fit = answer_fit(
            question,
            many,
            lambda done, of: bar.update(task, completed=done, total=of),
            mapped=choice.html is not None,
        )
    _print(fit)
    if choice.json:
        _write("--json", choice.json, json.dumps(json_of(fit), indent=1, allow_nan=False) + "\n")
    if choice.html:
        _write("--html", choice.html, html_of(fit))
    if choice.markdown:
        _write("--markdown", choice.markdown, markdown_of(fit))
    return bool(fit.fitting)


def markdown_of(fit: Fit) -> str:
    """The same table for a page."""
    heads = heads_of(fit)
    rules = ["---:" if head.startswith(">") else "---" for head in heads]
    lines = [[head.removeprefix(">") for head in heads], rules]
    rows = [[str(escape_markdown(entry)) for entry in line] for line in lines_of(fit)]
    taken = [[escape_markdown(t) for t in (a.name, a.value, a.source)] for a in assumptions_of(fit)]
    parts = [f"# What fits: {escape_markdown(workload_of_fit(fit))}", "", escape_markdown(lead_of(fit)), ""]
    parts += [f"| {' | '.join(line)} |" for line in [*lines, *rows]]
    if taken:
        told = [["assumption", "value", "source"], ["---"] * 3, *taken]
        parts += ["", "## Assumptions", "", *(f"| {' | '.join(line)} |" for line in told)]
    return "\n".join([*parts, ""])


def _print(fit: Fit) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_UNLIMITED)
    console.print(Text(workload_of_fit(fit), style="bold"))
    console.print(_table(heads_of(fit), lines_of(fit)))
    console.print(Text(lead_of(fit), style="bold"))
    if assumptions := assumptions_of(fit):
        console.print(_table(["assumption", ">value", "source"], _assumption_lines(assumptions)))
    console.print(Text(f"{fit.asked} points predicted; nothing was run.", style="dim"))


def _assumption_lines(assumptions: Sequence[Assumption]) -> list[list[str]]:
    """Rates share one long source: it is said once."""
    before = ["", *(a.source for a in assumptions)]
    return [
        [a.name, a.value, a.source if a.source != above else "as above"]
        for a, above in zip(assumptions, before, strict=False)
    ]


def _table(heads: list[str], lines: list[list[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        number = head.startswith(">")
        justify = "right" if number else "left"
        table.add_column(head.removeprefix(">"), justify=justify, no_wrap=number, overflow="fold")  # type: ignore[arg-type]
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def _write(key: str, path: Path, text: str) -> None:
    try:
        write_atomic(path, text)
    except OSError as problem:
        raise UsageError(key, path, f"cannot be written: {problem.strerror}") from None

"""``python -m analysis VERB``: what the records of a sweep say, and formulas before there are any."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from suite.errors import UsageError

app = typer.Typer(
    help="What records of a sweep say, and formulas before there are any. Nothing is measured or changed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of the sweep: runs/<sweep>.")]


@app.command()
def report(
    run_dir: RunDir,
    out: Annotated[Path | None, typer.Option(help="Where to write; reports/<sweep> if not given.")] = None,
) -> None:
    """Render index.html, report.md, PNG pictures and cells.csv; print the answer and the page."""
    from analysis.report import damaged, headline, write_report

    page = write_report(run_dir, out or Path("reports") / run_dir.resolve().name)
    if problem := damaged(run_dir):
        typer.echo(f"warning: {problem}", err=True)
    typer.echo(headline(run_dir))
    typer.echo(page)


@app.command()
def sync(
    run_dir: RunDir,
    uri: Annotated[str, typer.Option(help="Tracking URI; sqlite beside the sweep if not given.")] = "",
    experiment: Annotated[str, typer.Option(help="Experiment; the suite's own if not given.")] = "",
) -> None:
    """Send every cell to the tracker again: after an outage, or to rebuild a lost store."""
    from analysis.sync import sync_run

    typer.echo(sync_run(run_dir, uri, experiment))


@app.command()
def claims(run_dir: RunDir) -> None:
    """Judge what is said of recomputation by the records: claim, expected, measured, verdict."""
    from analysis.claims.table import print_claims

    print_claims(run_dir)


@app.command()
def policies(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OVERRIDE]...", help="As of python -m suite: model=llama3_8b seq_len=8192."
        ),
    ] = None,
    form: Annotated[str, typer.Option("--format", help="table, markdown, json or csv.")] = "table",
) -> None:
    """What every policy would keep and cost on a workload, from formulas: no record, no device.

    The device is the CPU unless device=cuda is given: it decides which kernels the formulas assume.
    """
    from analysis.policies.show import show_policies

    show_policies(overrides or [], form)


@app.command()
def validate(
    source: Annotated[str, typer.Option(help="One source alone, such as torchtitan.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="At most so many figures; 0: all.")] = 0,
    jobs: Annotated[int, typer.Option(min=0, help="Predictor processes; 0: one a core.")] = 0,
    worst: Annotated[int, typer.Option(min=0, help="How many of the worst rows to list.")] = 15,
    json: Annotated[Path | None, typer.Option(help="Write everything to this file too.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables to this file too.")] = None,
    verbose: Annotated[bool, typer.Option(help="Name the rows that are not modelled.")] = False,
) -> None:
    """Predict published measurements of memory and time, and print how far off it is."""
    from analysis.validate.show import Choice, show_validation

    show_validation(Choice(source, limit, jobs, worst, verbose, json, markdown))


@app.command()
def fit(
    model: Annotated[str, typer.Option(help="A preset of conf/model, such as llama3_8b.")],
    hardware: Annotated[str, typer.Option(help="A card of conf/hardware, such as h100_80gb; or cpu.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Such as full, discard.all, 'ops(save=mm)'; repeat it."),
    ] = None,
    vary: Annotated[str, typer.Option(help="What grows: seq_len, batch_size or n_layers.")] = "seq_len",
    seq_len: Annotated[int, typer.Option(min=0, help="Tokens; 0: the model's context.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences of one device's step.")] = 1,
    precision: Annotated[str, typer.Option(help="fp32, bf16-mixed or bf16-true.")] = "bf16-mixed",
    attention: Annotated[str, typer.Option(help="eager, sdpa or flash.")] = "sdpa",
    optimizer: Annotated[str, typer.Option(help="adamw or sgd.")] = "adamw",
    impl: Annotated[str, typer.Option(help="Of the optimizer: foreach, fused or forloop.")] = "fused",
    budget: Annotated[str, typer.Option(help="For the peak, such as 60GiB; the card alone if none.")] = "",
    parallel: Annotated[str, typer.Option(help="Such as tp=8,zero=3,dp=8.")] = "",
    assume: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Instead of an assumption; repeat it.")
    ] = None,
    step: Annotated[int, typer.Option(min=0, help="Between values; 0: 128 tokens, else 1.")] = 0,
    most: Annotated[int, typer.Option(min=1, help="The largest value that is asked.")] = 1 << 22,
    jobs: Annotated[int, typer.Option(min=0, help="Predictor processes; 0: one a core.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write everything to this file too.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with a heat map.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file too.")] = None,
) -> None:
    """The largest length, batch or depth that fits a card under each policy, and its predicted cost.

    Exit code 1 if nothing fits.
    """
    from analysis.fit.show import Choice, show_fit

    choice = Choice(
        model=model,
        hardware=hardware,
        policies=tuple(policy or ()),
        vary=vary,
        seq_len=seq_len,
        batch_size=batch_size,
        precision=precision,
        attention=attention,
        optimizer=optimizer,
        impl=impl,
        budget=budget,
        parallel=parallel,
        assume=tuple(assume or ()),
        step=step,
        most=most,
        jobs=jobs,
        json=json,
        html=html,
        markdown=markdown,
    )
    if not show_fit(choice):
        raise typer.Exit(1)


def main() -> None:
    """Run the command line; bad input is one line on stderr and exit code 2."""
    try:
        app()
    except UsageError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

"""The report of a sweep: one self-contained HTML page, the same in Markdown, PNG pictures and a CSV."""

import re
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from analysis import figures, pictures, tables
from analysis.answer import Answer, answer
from analysis.claims import judge
from analysis.claims.table import about_claims, claims_sentence, claims_table
from analysis.compare import Comparison, compare, frame
from analysis.kept import KeptView, charted, kept_views
from analysis.kept_markdown import kept_markdown
from analysis.kept_tables import kept_tables
from analysis.load import RunData, load_run
from analysis.provenance import provenance
from analysis.style import STATUS_WORDS, policy_styles
from analysis.views import composition_views, length_views, noise_views, pareto_view
from suite.errors import UsageError
from suite.store import write_atomic
from suite.units import show_bytes

_MOST_NOISE_FIGURES = 12
_STATES = {
    "running": "This sweep is still running, or was killed: the report shows what is recorded so far.",
    "interrupted": "This sweep was interrupted: the report shows what was recorded until then.",
    "stopped": "This sweep stopped after a failure: the report shows what was recorded until then.",
}


def write_report(run_dir: Path, out_dir: Path) -> Path:
    """Render the sweep in ``run_dir`` and return the path of ``index.html``.

    Writes ``index.html``, ``report.md``, ``cells.csv`` and those of ``pareto.png``,
    ``peak_by_length.png``, ``composition.png`` and ``kept.png`` that have something to show. Works on a
    sweep at any moment: finished, interrupted, or with records missing or damaged. Raises
    :class:`suite.errors.UsageError` if ``run_dir`` is no sweep's folder or ``out_dir`` cannot be one.
    """
    run = load_run(run_dir)
    _make_folder(out_dir)
    comparison = compare(run)
    shown = _Shown.of(run, comparison)
    drawn = _write_pictures(shown, out_dir)
    context = _context(run, comparison, shown) | {"pictures": drawn}
    frame(comparison).to_csv(out_dir / "cells.csv", index=False)
    write_atomic(out_dir / "report.md", _markdown().get_template("report.md.j2").render(context))
    page = _html().get_template("report.html.j2").render(context | {"plotly_js": _plotly_js()})
    index = out_dir / "index.html"
    write_atomic(index, page)
    return index


def damaged(run_dir: Path) -> str:
    """One line about the files of a sweep that are no records; empty if all are."""
    invalid = load_run(run_dir).invalid
    if not invalid:
        return ""
    more = f" and {len(invalid) - 1} more, listed in the report" if len(invalid) > 1 else ""
    return f"no record, and left out: {invalid[0]}{more}"


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as problem:
        reason = f"expected a folder that can be written: {problem.strerror}"
        raise UsageError("--out", path, reason) from None


def headline(run_dir: Path) -> str:
    """The report's first sentence: the answer for the longest workload that has one."""
    run = load_run(run_dir)
    return _lead(run, [answer(workload, run.budget_bytes) for workload in compare(run).workloads])


@dataclass(frozen=True)
class _Shown:
    """The views and answers that page, Markdown and pictures share."""

    answers: list[Answer]
    styles: dict[str, Any]
    paretos: list[Any]
    lengths: list[Any]
    compositions: list[Any]
    kepts: list[KeptView]
    noises: list[Any]

    @staticmethod
    def of(run: RunData, comparison: Comparison) -> "_Shown":
        paretos = [pareto_view(workload, run.budget_bytes) for workload in comparison.workloads]
        return _Shown(
            answers=[answer(workload, run.budget_bytes) for workload in comparison.workloads],
            styles=policy_styles(run.cells, run.reference),
            paretos=[view for view in paretos if view],
            lengths=length_views(comparison, run.budget_bytes),
            compositions=composition_views(comparison, run.budget_bytes),
            kepts=kept_views(comparison),
            noises=noise_views(comparison.workloads),
        )


def _write_pictures(shown: _Shown, out_dir: Path) -> dict[str, bool]:
    return {
        "pareto": pictures.write_pareto(shown.paretos, shown.styles, out_dir / "pareto.png"),
        "length": pictures.write_peak_by_length(
            shown.lengths, shown.styles, out_dir / "peak_by_length.png"
        ),
        "composition": pictures.write_stacked(
            [view.stacked() for view in shown.compositions], out_dir / "composition.png"
        ),
        "kept": pictures.write_stacked(charted(shown.kepts), out_dir / "kept.png"),
    }


def _context(run: RunData, comparison: Comparison, shown: _Shown) -> dict[str, Any]:
    told = provenance(run)
    kept = kept_tables(shown.kepts)
    return {
        "name": run.name,
        "lead": _lead(run, shown.answers),
        "banner": _STATES.get(str(run.manifest.get("state")), ""),
        "setting": _setting(run, comparison),
        "counts": [(STATUS_WORDS.get(status, status), status, n) for status, n in run.counts().items()],
        "answers": tables.answers(shown.answers),
        "verdicts": tables.verdicts(comparison, run.reference),
        "claims": claims_table(run) if about_claims(run) else None,
        "reference": run.reference,
        "paretos": figures.pareto_figures(shown.paretos, shown.styles),
        "lengths": figures.length_figures(shown.lengths, shown.styles),
        "compositions": figures.composition_figures(shown.compositions),
        "lives": figures.live_figures(shown.compositions, shown.answers, shown.styles, run.budget_bytes),
        "peaks": tables.peaks(comparison),
        "kept": kept,
        "kept_figures": figures.kept_figures(charted(shown.kepts)),
        "kept_markdown": kept_markdown(shown.kepts, kept),
        "noise_figures": figures.noise_figures(shown.noises[:_MOST_NOISE_FIGURES], shown.styles),
        "noise_left_out": max(0, len(shown.noises) - _MOST_NOISE_FIGURES),
        "noise": tables.noise(shown.noises),
        "facts": told.facts,
        "notes": told.notes,
        "warnings": told.warnings,
        "invalid": run.invalid,
        "show_bytes": show_bytes,
    }


def _lead(run: RunData, answers: list[Answer]) -> str:
    """The answer for the longest workload that has one: where recomputation matters the most."""
    if about_claims(run):
        return claims_sentence(judge(run.cells))
    if not answers:
        return "This sweep has no cells."
    return max(answers, key=lambda found: (found.best is not None, found.workload.seq_len)).sentence


def _setting(run: RunData, comparison: Comparison) -> str:
    named = [f"{name.lower()} {value}" for name, value in comparison.constant.items() if value != "none"]
    budget = "no memory budget" if run.budget_bytes is None else f"budget {show_bytes(run.budget_bytes)}"
    return ", ".join([*named, budget])


@cache
def _plotly_js() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())  # noqa: S704  # the library's own script, inlined once


def _html() -> Environment:
    return Environment(
        loader=PackageLoader("analysis"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _markdown() -> Environment:
    return Environment(
        loader=PackageLoader("analysis"),
        autoescape=False,  # noqa: S701  # finalize escapes every value for Markdown instead
        finalize=escape_markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def escape_markdown(value: object) -> str:
    """``value`` as literal text inside Markdown, also inside a table."""
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*|~])", r"\\\1", text)
    # A bracket is a link only before an address, a label or a definition: intervals stay readable.
    text = re.sub(r"\](?=[(\[:])", r"\\]", text)
    # An underscore between word characters is no emphasis.
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)
    return re.sub(r"\s*[\r\n]+\s*", " ", text)

"""The interactive figures of a report, each with what a reader who cannot see it is told."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import plotly.graph_objects as go
from markupsafe import Markup

from analysis import plots
from analysis.answer import Answer
from analysis.stacked import StackedView
from analysis.style import STATUS_WORDS, PolicyStyle
from analysis.views import CompositionView, LengthView, LiveView, NoiseView, ParetoView, live_views
from suite.units import show_bytes

Styles = dict[str, PolicyStyle]

_KEPT_NOTE = "Beside each bar: the FLOPs that ran again, over those that the step needs."


@dataclass(frozen=True)
class ReportFigure:
    """``json`` is Plotly's, safe inside a script element; ``note`` is a caption or empty.

    ``legend`` is (name, colour) of what the page lists above the figure: Plotly's own would take the room
    of the bars on a narrow screen.
    """

    id: str
    title: str
    alt: str
    height: int
    json: Markup
    note: str = ""
    legend: tuple[tuple[str, str], ...] = ()


def pareto_figures(views: Sequence[ParetoView], styles: Styles) -> list[ReportFigure]:
    """Memory against cost, one figure per workload."""
    found: list[ReportFigure] = []
    for view in views:
        points = (
            f"{row.summary.policy} at {show_bytes(row.summary.peak_bytes)} and {row.plain_cost:.2f}"
            for row in view.front
        )
        alt = f"Peak memory against {view.cost_label}. Frontier: {'; '.join(points) or 'empty'}."
        if view.strip:
            alt += (
                f" {view.strip_label.capitalize()}: {', '.join(row.summary.policy for row in view.strip)}."
            )
        note = ""
        if view.unplaced:
            words = (
                f"{row.summary.policy} ({STATUS_WORDS.get(row.summary.status, row.summary.status)})"
                for row in view.unplaced
            )
            note = f"Not drawn, no peak known: {', '.join(words)}."
        found.append(
            _figure(f"pareto-{len(found)}", view.workload.label, alt, plots.pareto(view, styles), note)
        )
    return found


def length_figures(views: Sequence[LengthView], styles: Styles) -> list[ReportFigure]:
    """Peak against sequence length, one figure per group."""
    found: list[ReportFigure] = []
    for view in views:
        ends = (
            f"{policy} {show_bytes(rows[-1].summary.peak_bytes)}" for policy, rows in view.lines.items()
        )
        alt = f"Peak memory against sequence length. At the longest length measured: {', '.join(ends)}."
        title = view.group or f"{view.lengths[0]:,} to {view.lengths[-1]:,} tokens"
        found.append(_figure(f"length-{len(found)}", title, alt, plots.peak_by_length(view, styles)))
    return found


def composition_figures(views: Sequence[CompositionView]) -> list[ReportFigure]:
    """What the peak is made of, one figure per group."""
    found: list[ReportFigure] = []
    for view in views:
        parts = (
            f"{row.summary.policy}: " + ", ".join(f"{kind} {show_bytes(n)}" for kind, n in kinds.items())
            for row, kinds in view.bars
        )
        alt = f"Bytes alive at the peak by kind. {'; '.join(parts)}."
        name = f"composition-{len(found)}"
        found.append(_bars(name, view.stacked(), alt))
    return found


def kept_figures(views: Sequence[StackedView]) -> list[ReportFigure]:
    """Bytes saved for backward by part of the model, one figure per view."""
    found: list[ReportFigure] = []
    for view in views:
        totals = (f"{bar.name} {show_bytes(bar.total)}, {bar.note}" for bar in view.bars)
        alt = f"Bytes saved for backward by part of the model. {'; '.join(totals)}."
        found.append(_bars(f"kept-{len(found)}", view, alt, _KEPT_NOTE))
    return found


def live_figures(
    views: Sequence[CompositionView], answers: Sequence[Answer], styles: Styles, budget_bytes: int | None
) -> list[ReportFigure]:
    """Memory over one step of selected cells; the cells of one workload share their vertical axis."""
    by_workload = {found.workload.slug: found for found in answers}
    figures: list[ReportFigure] = []
    for view in views:
        lives: list[LiveView] = live_views(view, by_workload.get(view.workload.slug))
        top = max((size for live in lives for _, size, _ in live.series), default=0.0)
        for live in lives:
            title = f"{live.row.summary.policy}, {view.workload.label}"
            peak = max(live.series, key=lambda point: point[1])
            alt = f"Live memory over one step: highest, {show_bytes(peak[1])}, in {peak[2]}."
            drawn = plots.live_memory(live, top, styles, budget_bytes)
            figures.append(_figure(f"live-{len(figures)}", title, alt, drawn))
    return figures


def noise_figures(views: Sequence[NoiseView], styles: Styles) -> list[ReportFigure]:
    """Step time by round, one figure per workload."""
    found: list[ReportFigure] = []
    for view in views:
        rounds = max(len(row.summary.rounds_s) for row in view.rows)
        alt = f"Step time of {len(view.rows)} policies over {rounds} rounds, each against its own mean."
        found.append(_figure(f"noise-{len(found)}", view.workload.label, alt, plots.noise(view, styles)))
    return found


def _bars(name: str, view: StackedView, alt: str, note: str = "") -> ReportFigure:
    legend = tuple((part.replace("_", " "), view.colour(part)) for part in view.parts)
    return replace(_figure(name, view.title, alt, plots.stacked_bars(view), note), legend=legend)


def _figure(name: str, title: str, alt: str, figure: go.Figure, note: str = "") -> ReportFigure:
    # Plotly writes <, > and / as escapes: the text cannot end the script element it is put into.
    return ReportFigure(name, title, alt, int(figure.layout.height), Markup(figure.to_json()), note)  # noqa: S704

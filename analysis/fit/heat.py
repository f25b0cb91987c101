"""The heat map: policy by value, coloured by whether it fits, with the predicted peak in each field."""

from typing import Any

import plotly.graph_objects as go

from analysis.fit.ask import Fit, Outcome
from analysis.fit.point import FITS, OVER, TIGHT, Point
from analysis.fit.tables import ordered
from analysis.plot_parts import axes, blank, text
from analysis.style import GREEN, INK, VERMILLION, YELLOW, short
from suite.units import show_bytes

# By verdict: its level on the colour scale and its word.
_LEVELS = {FITS: (0, "fits"), TIGHT: (1, "tight"), OVER: (2, "no")}
_COLOURS = (GREEN, YELLOW, VERMILLION)
# What all three colours leave readable in light and dark: they are washes.
_OPACITY = 0.45
_ROW_PIXELS = 34


def heat_map(fit: Fit) -> go.Figure:
    """Every policy that can be predicted against the columns of ``fit``; the largest value on top."""
    outcomes = [outcome for outcome in ordered(fit) if not outcome.refused][::-1]
    values = list(fit.columns)
    fields = [[_field(outcome, value) for value in values] for outcome in outcomes]
    figure = blank(height=110 + _ROW_PIXELS * len(outcomes))
    steps = len(_COLOURS)
    scale = [[(i + edge) / steps, colour] for i, colour in enumerate(_COLOURS) for edge in (0, 1)]
    figure.add_heatmap(
        x=[f"{value:,}" for value in values],
        y=[text(short(outcome.label)) for outcome in outcomes],
        z=[[_level(point) for point in row] for row in fields],
        text=[[_words(point) for point in row] for row in fields],
        texttemplate="%{text}",
        textfont={"color": INK, "size": 11},
        hovertext=[
            [_hover(outcome, point) for point in row] for outcome, row in zip(outcomes, fields, strict=True)
        ],
        hoverinfo="text",
        colorscale=scale,
        zmin=-0.5,
        zmax=steps - 0.5,
        opacity=_OPACITY,
        xgap=2,
        ygap=2,
        showscale=False,
        hoverongaps=False,
    )
    axes(figure, x=f"{fit.question.vary}; in each field the predicted peak", y="")
    figure.update_xaxes(type="category", showgrid=False)
    return figure.update_yaxes(type="category", showgrid=False, ticks="")


def legend() -> list[tuple[str, str]]:
    """Name and colour of each verdict."""
    words = {FITS: "fits", TIGHT: "tight: fits with expandable segments", OVER: "does not fit"}
    return [(words[verdict], _COLOURS[level]) for verdict, (level, _) in _LEVELS.items()]


def _field(outcome: Outcome, value: int) -> Point | None:
    return next((point for point in outcome.points if point.value == value), None)


def _level(point: Point | None) -> int | None:
    known = _LEVELS.get(point.verdict) if point else None
    return known[0] if known else None


def _words(point: Point | None) -> str:
    known: Any = _LEVELS.get(point.verdict) if point else None
    if point is None or known is None:
        return ""
    # Colour alone would not do: the word is there too.
    return f"{show_bytes(point.peak_bytes)} {known[1]}"


def _hover(outcome: Outcome, point: Point | None) -> str:
    if point is None:
        return ""
    lines = [f"<b>{text(outcome.label)}</b> at {point.value:,}: {text(point.verdict)}"]
    if point.peak_bytes is None:
        return "<br>".join([*lines, text(point.reason)])
    phase = point.detail.get("peak_phase") or "the step"
    lines.append(f"peak {show_bytes(point.peak_bytes)} in {text(phase)}")
    used = point.figures.get("device_used_bytes")
    if used is not None:
        least = point.figures.get("least_device_used_bytes")
        lines.append(f"on the device {show_bytes(least)} to {show_bytes(used)}")
    return "<br>".join(lines)

"""The report's interactive figures, as Plotly figures with stand-in colours (see style.INK)."""

import math
from typing import Any

import plotly.graph_objects as go

from analysis.answer import cost_text
from analysis.detail import thin
from analysis.plot_parts import (
    LEGEND,
    axes,
    blank,
    budget_line,
    edge_colour,
    hover,
    marker_colour,
    note_at,
    symbol_of,
    text,
)
from analysis.stacked import StackedView
from analysis.style import (
    GRID,
    INK,
    MUTED,
    PAPER,
    PHASE_COLOURS,
    VERMILLION,
    PolicyStyle,
    byte_unit,
    short,
)
from analysis.views import (
    LengthView,
    LiveView,
    NoiseView,
    ParetoPoint,
    ParetoView,
    round_ticks,
)
from suite.units import show_bytes, show_seconds

Styles = dict[str, PolicyStyle]


def pareto(view: ParetoView, styles: Styles) -> go.Figure:
    """Peak memory against cost: frontier, intervals, budget, and a strip for cells without a time."""
    unit = byte_unit([r.summary.peak_bytes for r in view.priced + view.strip])
    scale = view.scale()
    figure = blank(height=400)
    if view.front:
        xs = [unit(r.summary.peak_bytes or 0) for r in view.front]
        ys = [r.plain_cost for r in view.front]
        line = {"color": MUTED, "width": 1.5, "shape": "hv"}
        figure.add_scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", name="frontier")
    if view.strip:
        band: dict[str, Any] = {"fillcolor": VERMILLION, "opacity": 0.1, "line_width": 0, "layer": "below"}
        figure.add_hrect(y0=scale.top, y1=scale.end, **band)
        corner = note_at(view.strip_label, x=0, y=scale.end, xref="paper", xanchor="left", yanchor="bottom")
        figure.add_annotation(**corner)
    budget_line(figure, view.budget_bytes, unit, upright=True)
    for point in view.points(unit):
        figure.add_scatter(**_point(point, view, styles))
        if point.name:
            label = point.label
            note = note_at(point.name, colour=INK, x=point.x, y=point.y, xanchor=label.align)
            if label.leader:
                line = {"showarrow": True, "arrowhead": 0, "arrowwidth": 0.75, "arrowcolor": MUTED}
                figure.add_annotation(
                    **note | line, ax=label.dx, ay=-label.dy, standoff=5, yanchor="middle"
                )
            else:
                figure.add_annotation(**note, xshift=label.dx, yshift=label.dy, yanchor="middle")
    axes(figure, x=f"peak memory, {unit.name}", y=view.cost_label)
    figure.update_xaxes(range=view.peak_range(unit))
    figure.update_yaxes(range=[scale.bottom, scale.end])
    if view.priced:
        figure.add_hline(y=1, line={"color": GRID, "width": 1}, layer="below")
    return figure.update_layout(showlegend=False)


def peak_by_length(view: LengthView, styles: Styles) -> go.Figure:
    """Peak against sequence length, both logarithmic; out-of-memory and wrong cells stay on the line."""
    unit = byte_unit([r.summary.peak_bytes for rows in view.lines.values() for r in rows])
    figure = blank(height=460)
    for policy, rows in view.lines.items():
        style = styles[policy]
        symbols = [symbol_of(row, style) for row in rows]
        figure.add_scatter(
            x=[r.seq_len for r in rows],
            y=[unit(r.summary.peak_bytes or 0) for r in rows],
            mode="lines+markers",
            name=text(short(policy)),
            line={"color": style.colour, "width": 1.75, "dash": style.dash},
            marker={
                "symbol": symbols,
                "opacity": 1,
                "size": [11 if r.summary.status in ("oom", "wrong") else 7 for r in rows],
                "color": [marker_colour(r, style) for r in rows],
                "line": {"width": [2 if s.endswith("-thin") else 0 for s in symbols], "color": VERMILLION},
            },
            hovertext=[hover(r) for r in rows],
            hoverinfo="text",
        )
    axes(figure, x="sequence length, tokens", y=f"peak memory, {unit.name}")
    ticks = {"tickvals": list(view.lengths), "ticktext": [f"{n:,}" for n in view.lengths]}
    figure.update_xaxes(type="log", minor={"showgrid": False}, **ticks)
    peaks = [unit(r.summary.peak_bytes or 0) for rows in view.lines.values() for r in rows]
    values = round_ticks(min(peaks), max(peaks))
    figure.update_yaxes(type="log", tickvals=values, ticktext=[f"{v:,.10g}" for v in values])
    budget_line(figure, view.budget_bytes, unit, upright=False)
    return figure.update_layout(legend=LEGEND)


def stacked_bars(view: StackedView) -> go.Figure:
    """One stacked bar per policy, with a word at its end."""
    unit, bars = view.unit, view.bars[::-1]
    names = [text(short(bar.name)) for bar in bars]
    places = list(range(len(bars)))
    figure = blank(height=84 + 26 * len(bars))
    for part in view.parts:
        sizes = [bar.parts.get(part, 0.0) for bar in bars]
        figure.add_bar(
            x=[unit(size) for size in sizes],
            y=places,
            orientation="h",
            name=text(part.replace("_", " ")),
            marker={"color": view.colour(part), "line": {"color": PAPER, "width": 1}},
            hovertext=[
                f"{name}<br>{text(part.replace('_', ' '))}: {show_bytes(size)}"
                for name, size in zip(names, sizes, strict=True)
            ],
            hoverinfo="text",
        )
    for place, bar in zip(places, bars, strict=True):
        figure.add_annotation(
            **note_at(bar.note, x=unit(bar.total), y=place, xanchor="left", xshift=4, yanchor="middle")
        )
    axes(figure, x=f"{view.axis}, {unit.name}", y="")
    figure.update_xaxes(range=[0, view.end])
    figure.update_yaxes(
        tickvals=places, ticktext=names, showgrid=False, ticks="", range=[-0.6, len(bars) - 0.4]
    )
    budget_line(figure, view.budget_bytes, unit, upright=True, within=view.end)
    return figure.update_layout(barmode="stack", bargap=0.25, showlegend=False)


def live_memory(view: LiveView, top_bytes: float, styles: Styles, budget_bytes: int | None) -> go.Figure:
    """Live memory over one step, with the phases shaded; ``top_bytes`` is shared by sibling figures."""
    unit = byte_unit([top_bytes])
    style = styles[view.row.summary.policy]
    series = thin(view.series)
    figure = blank(height=260)
    figure.add_scatter(
        x=[event for event, _, _ in series],
        y=[unit(size) for _, size, _ in series],
        mode="lines",
        line={"color": style.colour, "width": 1.25, "shape": "hv"},
        hovertext=[
            f"{text(phase)}, event {event:,.0f}: {show_bytes(size)}" for event, size, phase in series
        ],
        hoverinfo="text",
    )
    span = view.series[-1][0] - view.series[0][0]
    for start, stop, phase in view.bands():
        colour = PHASE_COLOURS.get(phase, MUTED)
        figure.add_vrect(x0=start, x1=stop, fillcolor=colour, opacity=0.13, line_width=0, layer="below")
        if stop - start > 0.1 * span:
            figure.add_annotation(
                **note_at(phase, x=(start + stop) / 2, y=1, yref="paper", yanchor="bottom")
            )
    budget_line(figure, budget_bytes, unit, upright=False, within=unit(top_bytes) * 1.08)
    axes(figure, x="allocation events of one step", y=f"live memory, {unit.name}")
    figure.update_yaxes(range=[0, unit(top_bytes) * 1.08])
    return figure.update_layout(showlegend=False)


def noise(view: NoiseView, styles: Styles) -> go.Figure:
    """Step time by round, each policy relative to its own mean: common drift shows as parallel lines."""
    figure = blank(height=300)
    for row in sorted(view.rows, key=lambda r: r.summary.cell == _baseline(view)):
        rounds = sorted(row.summary.rounds_s.items())
        mean = math.exp(sum(math.log(s) for _, s in rounds) / len(rounds))
        bold = row.summary.cell == _baseline(view)
        style = styles[row.summary.policy]
        figure.add_scatter(
            x=[r + 1 for r, _ in rounds],
            y=[(s / mean - 1) * 100 for _, s in rounds],
            mode="lines+markers",
            name=text(row.summary.policy),
            line={"color": INK if bold else style.colour, "width": 3 if bold else 1},
            marker={"symbol": style.symbol, "size": 7 if bold else 5},
            opacity=1 if bold else 0.65,
            hovertext=[f"{text(row.summary.policy)}, round {r + 1}: {show_seconds(s)}" for r, s in rounds],
            hoverinfo="text",
        )
    axes(figure, x="round", y="step time against own mean, %")
    return figure.update_xaxes(dtick=1, showgrid=False).update_layout(showlegend=False)


def _point(point: ParetoPoint, view: ParetoView, styles: Styles) -> dict[str, object]:
    row, y = point.row, point.y
    style = styles[row.summary.policy]
    symbol = symbol_of(row, style)
    bounded = row.ratio is not None and row.ratio.low is not None and row.summary.status != "oom"
    bar = {
        "type": "data",
        "symmetric": False,
        "array": [row.high_cost - y],
        "arrayminus": [y - row.low_cost],
        "thickness": 1.25,
        "width": 3,
        "color": style.colour,
    }
    return {
        "x": [point.x],
        "y": [y],
        "mode": "markers",
        "name": text(row.summary.policy),
        "marker": {
            "symbol": symbol,
            "size": 11,
            "color": marker_colour(row, style),
            "line": {"width": 2.5 if symbol.endswith("-thin") else 1, "color": edge_colour(row)},
        },
        "hovertext": hover(row) + f"<br>{text(cost_text(row, view.workload))}",
        "hoverinfo": "text",
        **({"error_y": bar} if bounded else {}),
    }


def _baseline(view: NoiseView) -> str:
    return view.workload.baseline.summary.cell if view.workload.baseline else ""

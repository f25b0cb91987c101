"""What the interactive figures have in common: canvas, axes, budget line, notes and hover text."""

import html
import math
from collections.abc import Callable

import plotly.graph_objects as go

from analysis.compare import Row
from analysis.style import GRID, INK, MUTED, PAPER, STATUS_WORDS, VERMILLION, ByteUnit, PolicyStyle
from suite.units import show_bytes

LEGEND = {
    "traceorder": "normal",
    "orientation": "h",
    "yanchor": "bottom",
    "y": 1.02,
    "xanchor": "left",
    "x": 0,
}
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"


def text(value: object) -> str:
    """``value`` for a Plotly label, which understands a subset of HTML."""
    return html.escape(str(value), quote=False)


def symbol_of(row: Row, style: PolicyStyle) -> str:
    """Plotly marker of a cell: its policy's, unless its status needs another shape."""
    special = {"oom": "x-thin", "wrong": "cross-thin", "noop": f"{style.symbol}-open"}
    return special.get(row.summary.status, style.symbol)


def marker_colour(row: Row, style: PolicyStyle) -> str:
    """Fill of a cell's marker."""
    return VERMILLION if row.summary.status in ("oom", "wrong") else style.colour


def edge_colour(row: Row) -> str:
    """Outline of a cell's marker; thin crosses have nothing else."""
    return VERMILLION if row.summary.status in ("oom", "wrong") else PAPER


def hover(row: Row) -> str:
    """What a pointer shows: policy, status, peak with its phase, saved bytes."""
    summary = row.summary
    status = STATUS_WORDS.get(summary.status, summary.status)
    lines = [f"<b>{text(summary.policy)}</b>, {row.seq_len:,} tokens: {text(status)}"]
    lines.append(f"peak {show_bytes(summary.peak_bytes)} in {text(summary.peak_phase or 'the step')}")
    if summary.saved_bytes is not None:
        lines.append(f"saved for backward {show_bytes(summary.saved_bytes)}")
    return "<br>".join(lines)


def budget_line(
    figure: go.Figure, budget_bytes: int | None, unit: ByteUnit, *, upright: bool, within: float = math.inf
) -> None:
    """Mark the memory budget across one axis; not if it lies beyond ``within``, in the axis' unit."""
    if budget_bytes is None or unit(budget_bytes) > within:
        return
    draw: Callable[..., object] = figure.add_vline if upright else figure.add_hline
    at = {"x": unit(budget_bytes)} if upright else {"y": unit(budget_bytes)}
    if upright:
        place = {"x": at["x"], "y": 0, "yref": "paper", "xanchor": "right"}
    else:
        level = math.log10(at["y"]) if figure.layout.yaxis.type == "log" else at["y"]
        place = {"x": 0.01, "y": level, "xref": "paper", "xanchor": "left"}
    draw(**at, line={"color": VERMILLION, "width": 1.5, "dash": "dash"})
    note = note_at(f"budget {show_bytes(budget_bytes)}", colour=VERMILLION, yanchor="bottom", **place)
    figure.add_annotation(**note, bgcolor=PAPER, opacity=0.9)


def note_at(words: str, *, colour: str = MUTED, **place: object) -> dict[str, object]:
    """A Plotly annotation without an arrow."""
    note = {"text": text(words), "showarrow": False, "font": {"size": 11, "color": colour}}
    return note | place


def blank(height: int) -> go.Figure:
    """An empty figure in the house style, ``height`` pixels high."""
    return go.Figure(
        layout={
            "template": "none",
            "height": height,
            "margin": {"l": 56, "r": 14, "t": 26, "b": 44},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": _FONT, "size": 12, "color": INK},
            "hoverlabel": {"bgcolor": PAPER, "bordercolor": MUTED, "font": {"color": INK}, "align": "left"},
            "dragmode": False,
        }
    )


def axes(figure: go.Figure, *, x: str, y: str) -> None:
    """Titles (with units) and rules of both axes."""
    common = {
        "gridcolor": GRID,
        "linecolor": MUTED,
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": MUTED,
    }
    figure.update_xaxes(title={"text": text(x), "standoff": 6}, showline=True, **common)
    figure.update_yaxes(title={"text": text(y), "standoff": 6}, automargin=True, **common)

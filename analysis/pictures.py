"""The report's figures as PNG files for Markdown and READMEs: drawn by matplotlib, no browser needed."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.labels import Placed
from analysis.stacked import StackedView
from analysis.style import (
    INK,
    VERMILLION,
    ByteUnit,
    PolicyStyle,
    byte_unit,
    short,
)
from analysis.views import LengthView, ParetoView, round_ticks
from suite.units import show_bytes

Styles = dict[str, PolicyStyle]

_View = TypeVar("_View")

_MOST_PANELS = 6
_RULE, _TEXT, _LINE = "#D5D8DC", "#1C1F23", "#5B616A"
_STYLE: dict[Any, Any] = {
    # Names come from users: "$" and "_" in them are characters, not mathematics.
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _TEXT,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": _RULE,
    "grid.linewidth": 0.6,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "text.color": _TEXT,
    "legend.frameon": False,
}


def write_pareto(views: Sequence[ParetoView], styles: Styles, path: Path) -> bool:
    """Memory against cost, one panel per workload, the longest sequences first. False: nothing to draw."""
    shown = sorted(views, key=lambda v: -v.workload.seq_len)[:_MOST_PANELS]
    return _write(shown, lambda ax, view: _pareto(ax, view, styles), path, size=(5.6, 3.9), columns=2)


def write_peak_by_length(views: Sequence[LengthView], styles: Styles, path: Path) -> bool:
    """Peak against sequence length, one panel per group. False: nothing to draw."""
    return _write(views, lambda ax, view: _lengths(ax, view, styles), path, size=(8.4, 4.8), columns=1)


def write_stacked(views: Sequence[StackedView], path: Path) -> bool:
    """Stacked bars, one panel per view. False: nothing to draw."""
    most = max((len(view.bars) for view in views), default=0)
    return _write(views, _stacked, path, size=(9.2, 1.5 + 0.3 * most), columns=1)


def _write(
    views: Sequence[_View],
    draw: Callable[[Axes, _View], None],
    path: Path,
    size: tuple[float, float],
    columns: int,
) -> bool:
    if not views:
        path.unlink(missing_ok=True)
        return False
    shown = views[:_MOST_PANELS]
    columns = min(columns, len(shown))
    rows = math.ceil(len(shown) / columns)
    with mpl.rc_context(_STYLE), _glyphs_may_lack():
        figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        FigureCanvasAgg(figure)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for panel, view in zip(panels, shown, strict=False):
            draw(panel, view)
            for text in panel.texts:
                # Labels inside a panel must not shrink it.
                text.set_in_layout(False)
        for panel in panels[len(shown) :]:
            panel.set_visible(False)
        figure.savefig(path, dpi=130, metadata={"Software": None})
    return True


@contextmanager
def _glyphs_may_lack() -> Iterator[None]:
    """A name in a script the bundled font lacks is drawn as boxes; the table has it in full."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        yield


def _pareto(panel: Axes, view: ParetoView, styles: Styles) -> None:
    unit = byte_unit([row.summary.peak_bytes for row in view.priced + view.strip])
    scale = view.scale()
    panel.set(xlim=view.peak_range(unit), ylim=(scale.bottom, scale.end))
    panel.set(xlabel=f"peak memory, {unit.name}", ylabel=view.cost_label)
    panel.set_title(short(view.workload.label, 60), pad=16 if view.strip else 6)
    if view.front:
        front = [(unit(row.summary.peak_bytes or 0), row.plain_cost) for row in view.front]
        panel.step(*zip(*front, strict=True), where="post", color=_LINE, linewidth=1.2, zorder=1)
    if view.strip:
        panel.axhspan(scale.top, scale.end, color=VERMILLION, alpha=0.1, linewidth=0)
        corner: dict[str, Any] = {"va": "bottom", "transform": panel.transAxes}
        panel.text(0, 1.01, view.strip_label, fontsize=8, color=_LINE, **corner)
    _budget(panel, view.budget_bytes, unit, upright=True)
    for point in view.points(unit):
        row, style = point.row, styles[point.row.summary.policy]
        if row.ratio is not None and row in view.priced:
            error = [[point.y - row.low_cost], [row.high_cost - point.y]]
            bars: dict[str, Any] = {"fmt": "none", "elinewidth": 1, "capsize": 2.5}
            panel.errorbar([point.x], [point.y], yerr=error, ecolor=_ink(style.colour), **bars)
        panel.plot([point.x], [point.y], linestyle="", **_marker(row.summary.status, style))
        if point.name:
            # Labels are placed in pixels of the page; here a point is 1/72 inch.
            panel.annotate(
                point.name,
                (point.x, point.y),
                xytext=(point.label.dx * 0.75, point.label.dy * 0.75),
                textcoords="offset points",
                ha=point.label.align,
                va="center",
                fontsize=8,
                arrowprops=_leader(point.label) if point.label.leader else None,
            )


def _leader(label: Placed) -> dict[str, Any]:
    near_end = {"left": (0.0, 0.5), "right": (1.0, 0.5), "center": (0.5, 0.5)}[label.align]
    return {
        "arrowstyle": "-",
        "color": _LINE,
        "linewidth": 0.6,
        "shrinkA": 0,
        "shrinkB": 4,
        "relpos": near_end,
    }


def _lengths(panel: Axes, view: LengthView, styles: Styles) -> None:
    unit = byte_unit([row.summary.peak_bytes for rows in view.lines.values() for row in rows])
    for policy, rows in view.lines.items():
        style = styles[policy]
        xs = [row.seq_len for row in rows]
        ys = [unit(row.summary.peak_bytes or 0) for row in rows]
        # A label that starts with "_" would be dropped from the legend.
        label = f" {short(policy)}" if policy.startswith("_") else short(policy)
        line: dict[str, Any] = {"color": _ink(style.colour), "linestyle": style.line, "linewidth": 1.5}
        panel.plot(xs, ys, marker=style.marker, markersize=4.5, label=label, **line)
        for x, y, row in zip(xs, ys, rows, strict=True):
            if row.summary.status in ("oom", "wrong"):
                panel.plot([x], [y], linestyle="", **_marker(row.summary.status, style))
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.xaxis.set_major_locator(FixedLocator(view.lengths))
    panel.xaxis.set_minor_locator(NullLocator())
    peaks = [unit(row.summary.peak_bytes or 0) for rows in view.lines.values() for row in rows]
    panel.yaxis.set_major_locator(FixedLocator(round_ticks(min(peaks), max(peaks))))
    panel.yaxis.set_minor_locator(NullLocator())
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    panel.set(
        xlabel="sequence length, tokens", ylabel=f"peak memory, {unit.name}", title=short(view.group, 90)
    )
    _budget(panel, view.budget_bytes, unit, upright=False)
    if any(row.summary.status == "oom" for rows in view.lines.values() for row in rows):
        panel.plot(
            [], [], linestyle="", **_marker("oom", styles[next(iter(view.lines))]), label="out of memory"
        )
    panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8.5)


def _stacked(panel: Axes, view: StackedView) -> None:
    unit = view.unit
    places = list(range(len(view.bars)))
    starts = [0.0] * len(view.bars)
    for part in view.parts:
        sizes = [unit(bar.parts.get(part, 0.0)) for bar in view.bars]
        look: dict[str, Any] = {"color": view.colour(part), "edgecolor": "white", "linewidth": 0.6}
        panel.barh(places, sizes, left=starts, label=part.replace("_", " "), height=0.72, **look)
        starts = [start + size for start, size in zip(starts, sizes, strict=True)]
    for place, bar in zip(places, view.bars, strict=True):
        beside: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
        panel.annotate(bar.note, (unit(bar.total), place), fontsize=8, color=_LINE, **beside)
    panel.set_yticks(places, [short(bar.name) for bar in view.bars])
    panel.tick_params(axis="y", length=0, labelcolor=_TEXT)
    panel.invert_yaxis()
    panel.grid(visible=False, axis="y")
    panel.set(xlim=(0, view.end), xlabel=f"{view.axis}, {unit.name}", title=short(view.title, 90))
    if view.budget_bytes is not None and unit(view.budget_bytes) <= view.end:
        _budget(panel, view.budget_bytes, unit, upright=True)
    panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8.5)


def _budget(panel: Axes, budget_bytes: int | None, unit: ByteUnit, *, upright: bool) -> None:
    if budget_bytes is None:
        return
    at = unit(budget_bytes)
    words = f"budget {show_bytes(budget_bytes)}"
    line: dict[str, Any] = {"color": VERMILLION, "linewidth": 1.3, "linestyle": (0, (5, 3))}
    note: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": 8, "color": VERMILLION}
    note["bbox"] = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1}
    if upright:
        panel.axvline(at, **line)
        panel.text(at, 0.03, f"{words} ", transform=panel.get_xaxis_transform(), **note)
    else:
        panel.axhline(at, **line)
        panel.text(0.008, at, words, transform=panel.get_yaxis_transform(), **note | {"ha": "left"})


def _marker(status: str, style: PolicyStyle) -> dict[str, Any]:
    if status in ("oom", "wrong"):
        shape = "x" if status == "oom" else "+"
        return {"marker": shape, "color": VERMILLION, "markersize": 8, "markeredgewidth": 2}
    face = "none" if status == "noop" else _ink(style.colour)
    edge = _ink(style.colour) if status == "noop" else "white"
    return {"marker": style.marker, "markerfacecolor": face, "markeredgecolor": edge, "markersize": 7.5}


def _ink(colour: str) -> str:
    return _TEXT if colour == INK else colour

"""What each figure shows, free of any plotting library: plots.py and pictures.py draw the same views."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from analysis.answer import Answer
from analysis.compare import Comparison, Row, Workload
from analysis.detail import KINDS, composition, live_bytes
from analysis.labels import Box, Placed, place_labels
from analysis.stacked import Bar, StackedView
from analysis.style import KIND_COLOURS, STATUS_WORDS, ByteUnit, short

_LABEL_ALL_UP_TO = 14
_LIVE_CELLS = 4
# The plot area that names are arranged for; a narrower page only makes them denser.
_PLOT_PIXELS = (430.0, 250.0)


@dataclass(frozen=True)
class CostScale:
    """Where a Pareto figure's vertical axis starts, where its strip starts, its middle, and the end."""

    bottom: float
    top: float
    strip_at: float
    end: float


@dataclass(frozen=True)
class ParetoPoint:
    """One cell in a Pareto figure, in axis units; an empty ``name`` is not written."""

    row: Row
    x: float
    y: float
    name: str
    label: Placed


@dataclass(frozen=True)
class ParetoView:
    """Memory against cost for one workload.

    ``priced`` cells have both coordinates; ``strip`` cells have a peak and no cost that counts;
    ``unplaced`` cells have no peak and are named in words.
    """

    workload: Workload
    priced: tuple[Row, ...]
    strip: tuple[Row, ...]
    unplaced: tuple[Row, ...]
    front: tuple[Row, ...]
    budget_bytes: int | None

    @property
    def cost_label(self) -> str:
        """The vertical axis, naming what costs are relative to."""
        what = "step time" if self.workload.cost_kind == "time" else "executed FLOPs"
        return f"{what} relative to {short(self.workload.baseline_policy)}"

    @property
    def strip_label(self) -> str:
        """``no time: out of memory``: why the cells of the strip have no vertical coordinate."""
        words = dict.fromkeys(
            STATUS_WORDS.get(r.summary.status, r.summary.status) if r.summary.status != "ok" else "pending"
            for r in self.strip
        )
        return f"no time: {', '.join(words)}"

    def scale(self) -> "CostScale":
        """The vertical axis: room for every interval, then the strip."""
        low = min((row.low_cost for row in self.priced), default=1.0)
        high = max((row.high_cost for row in self.priced), default=1.0)
        room = max(high - low, 0.05)
        top = high + 0.12 * room
        strip = (0.2 if len(self.strip) < 3 else 0.36) * room if self.strip else 0.0
        return CostScale(low - 0.12 * room, top, top + strip / 2, top + strip)

    def peak_range(self, unit: ByteUnit) -> tuple[float, float]:
        """The horizontal axis in ``unit``: every peak and the budget, with room for names."""
        peaks = [unit(row.summary.peak_bytes or 0) for row in self.priced + self.strip]
        if self.budget_bytes is not None:
            peaks.append(unit(self.budget_bytes))
        low, high = min(peaks), max(peaks)
        room = (high - low) or high
        return low - 0.08 * room, high + 0.16 * room

    def points(self, unit: ByteUnit) -> list["ParetoPoint"]:
        """Every cell with its place, and its name placed beside it: all of few, the important of many."""
        scale = self.scale()
        rows = self.priced + self.strip
        xs = [unit(row.summary.peak_bytes or 0) for row in rows]
        ys = [row.plain_cost for row in self.priced] + [scale.strip_at] * len(self.strip)
        few = len(rows) <= _LABEL_ALL_UP_TO
        names = [
            short(row.summary.policy)
            if few or row.on_front or row.is_reference or row.summary.status == "wrong"
            else ""
            for row in rows
        ]
        pixels = [self._pixel(unit, x, y) for x, y in zip(xs, ys, strict=True)]
        placed = place_labels(pixels, names, _PLOT_PIXELS, self._drawn(unit))
        return [ParetoPoint(*point) for point in zip(rows, xs, ys, names, placed, strict=True)]

    def _pixel(self, unit: ByteUnit, x: float, y: float) -> tuple[float, float]:
        scale, (left, right) = self.scale(), self.peak_range(unit)
        width, height = _PLOT_PIXELS
        return (x - left) / (right - left) * width, (y - scale.bottom) / (scale.end - scale.bottom) * height

    def _drawn(self, unit: ByteUnit) -> list[Box]:
        """Boxes around frontier, intervals and budget line: names should not be written over them."""
        lines = [
            ((row.summary.peak_bytes or 0, row.low_cost), (row.summary.peak_bytes or 0, row.high_cost))
            for row in self.priced
        ]
        for here, there in pairwise(self.front):
            corner = (there.summary.peak_bytes or 0, here.plain_cost)
            lines.append(((here.summary.peak_bytes or 0, here.plain_cost), corner))
            lines.append(((there.summary.peak_bytes or 0, there.plain_cost), corner))
        if self.budget_bytes is not None:
            scale = self.scale()
            lines.append(((self.budget_bytes, scale.bottom), (self.budget_bytes, scale.end)))
        boxes = []
        for (x0, y0), (x1, y1) in lines:
            left, bottom = self._pixel(unit, unit(x0), y0)
            right, top = self._pixel(unit, unit(x1), y1)
            boxes.append((left - 2, bottom - 2, right + 2, top + 2))
        return boxes


def pareto_view(workload: Workload, budget_bytes: int | None) -> ParetoView | None:
    """The view of one workload; None where no cell has a peak."""
    priced, strip, unplaced = [], [], []
    for row in workload.rows:
        if not row.summary.peak_bytes:
            unplaced.append(row)
        elif row.cost is None or row.summary.status == "oom":
            strip.append(row)
        else:
            priced.append(row)
    if not priced and not strip:
        return None
    front = sorted((r for r in priced if r.on_front), key=lambda r: r.summary.peak_bytes or 0)
    return ParetoView(workload, tuple(priced), tuple(strip), tuple(unplaced), tuple(front), budget_bytes)


@dataclass(frozen=True)
class LengthView:
    """Peak against sequence length for one group: policy to its cells by ascending length."""

    group: str
    lines: dict[str, tuple[Row, ...]]
    lengths: tuple[int, ...]
    budget_bytes: int | None


def round_ticks(low: float, high: float) -> list[float]:
    """The values 1, 2 and 5 times a power of ten between two positive bounds, a little beyond them too."""
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
    return [tick for tick in ticks if low / 1.6 <= tick <= high * 1.6]


def length_views(comparison: Comparison, budget_bytes: int | None) -> list[LengthView]:
    """One view per group that was measured at two lengths or more."""
    views = []
    for group, workloads in comparison.groups().items():
        lines: dict[str, list[Row]] = {}
        for workload in workloads:
            for row in workload.rows:
                if row.summary.peak_bytes:
                    lines.setdefault(row.summary.policy, []).append(row)
        lengths = sorted({row.seq_len for rows in lines.values() for row in rows})
        if len(lengths) > 1:
            drawn = {policy: tuple(rows) for policy, rows in lines.items()}
            views.append(LengthView(group, drawn, tuple(lengths), budget_bytes))
    return views


@dataclass(frozen=True)
class CompositionView:
    """What the peak is made of, per policy of one workload: (cell, kind to bytes)."""

    workload: Workload
    bars: tuple[tuple[Row, dict[str, float]], ...]
    budget_bytes: int | None

    @property
    def kinds(self) -> list[str]:
        """Every kind that occurs, in drawing order."""
        found = {kind for _, kinds in self.bars for kind in kinds}
        return [kind for kind in KINDS if kind in found] + sorted(found - set(KINDS))

    def stacked(self) -> StackedView:
        """The bars, each with the phase in which the peak falls."""
        bars = []
        for row, kinds in self.bars:
            words = short(row.summary.peak_phase or "step")
            if row.summary.status != "ok":
                words += f", {row.summary.status}"
            bars.append(Bar(row.summary.policy, kinds, words))
        kinds_drawn = tuple(self.kinds)
        title, budget = self.workload.label, self.budget_bytes
        return StackedView(title, "peak", tuple(bars), kinds_drawn, KIND_COLOURS, budget)


def composition_views(comparison: Comparison, budget_bytes: int | None) -> list[CompositionView]:
    """Per group its longest length at which at least half as many policies as anywhere are explained."""
    views = []
    for workloads in comparison.groups().values():
        explained = [
            CompositionView(workload, bars, budget_bytes)
            for workload in workloads
            if (bars := tuple((row, c) for row in workload.rows if (c := composition(row.summary.memory))))
        ]
        if explained:
            enough = max(len(view.bars) for view in explained) / 2
            common = [view for view in explained if len(view.bars) >= enough]
            views.append(max(common, key=lambda view: view.workload.seq_len))
    return views


@dataclass(frozen=True)
class LiveView:
    """Live memory over one step of one cell: (allocation event, bytes, phase)."""

    row: Row
    series: list[tuple[float, float, str]]

    def bands(self) -> list[tuple[float, float, str]]:
        """Consecutive stretches of one phase: (first event, last event, phase)."""
        bands: list[tuple[float, float, str]] = []
        for event, _, phase in self.series:
            if bands and bands[-1][2] == phase:
                bands[-1] = (bands[-1][0], event, phase)
            else:
                if bands:
                    bands[-1] = (bands[-1][0], event, bands[-1][2])
                bands.append((event, event, phase))
        return bands


def live_views(view: CompositionView, found: Answer | None) -> list[LiveView]:
    """Up to four cells of a workload: reference, answer, fallback, lowest peak, then the frontier."""
    series = {row.summary.cell: live_bytes(row.summary.memory) for row in view.workload.rows}
    rows = [row for row in view.workload.rows if series[row.summary.cell]]
    by_peak = sorted((r for r in rows if r.summary.status == "ok"), key=lambda r: r.summary.peak_bytes or 0)
    wanted = [row for row in rows if row.is_reference]
    if found:
        wanted += [row for row in (found.best, found.fallback) if row]
    wanted += by_peak[:1] + [row for row in by_peak if row.on_front] + by_peak + rows
    chosen = {row.summary.cell: row for row in wanted if series.get(row.summary.cell)}
    return [LiveView(row, series[cell]) for cell, row in list(chosen.items())[:_LIVE_CELLS]]


@dataclass(frozen=True)
class NoiseView:
    """Step time by round for one workload, each cell relative to its own geometric mean."""

    workload: Workload
    rows: tuple[Row, ...]


def noise_views(workloads: Sequence[Workload]) -> list[NoiseView]:
    """One view per workload with two rounds or more."""
    views = []
    for workload in workloads:
        rows = tuple(row for row in workload.rows if len(row.summary.rounds_s) > 1)
        if rows:
            views.append(NoiseView(workload, rows))
    return views

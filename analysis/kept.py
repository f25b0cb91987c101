"""What each policy of a workload kept, where, by which rule, and what it ran again for that."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.compare import Comparison, Row, Workload
from analysis.detail import KeptPlace, RanAgain, Rule, kept_places, ran_again, rules
from analysis.stacked import Bar, StackedView
from analysis.style import PART_COLOURS, STATUS_WORDS
from suite.units import show_bytes

# Last component of a place to the part of the model that it belongs to.
_PARTS = {
    "blocks.*": "residual stream",
    "attn_norm": "norms",
    "mlp_norm": "norms",
    "norm": "norms",
    "qkv": "q, k, v",
    "rope": "q, k, v",
    "core": "attention",
    "out": "attention output",
    "up": "MLP up",
    "gate_up": "MLP up",
    "act": "MLP activation",
    "down": "MLP down",
    "mlp": "MLP routing",  # of a mixture: order and copies of rows; a plain MLP makes nothing itself
    "router": "MLP routing",
    "gate": "MLP routing",
    "head": "head",
}
_OTHER = "other"


@dataclass(frozen=True)
class KeptCell:
    """One cell with what its memory and FLOPs records explain; all empty if they explain nothing."""

    row: Row
    rules: tuple[Rule, ...]
    places: tuple[KeptPlace, ...]
    again: tuple[RanAgain, ...]

    @property
    def explained(self) -> bool:
        """Whether there is anything to show of it."""
        return bool(self.rules or self.places or self.again)

    @property
    def sentence(self) -> str:
        """``8 of 8 blocks recomputed, 2.6 MiB of activations outside any region``, as far as known."""
        summary = self.row.summary
        said = []
        recomputed = summary.flops.figures.get("blocks_recomputed_count") if summary.flops else None
        if recomputed is not None:
            depth = summary.config["model"]["n_layers"]
            said.append(f"{recomputed:.0f} of {depth} blocks recomputed")
        outside = summary.memory.figures.get("saved_outside_regions_bytes") if summary.memory else None
        if outside is not None:
            said.append(f"{show_bytes(outside)} of activations outside any region")
        return ", ".join(said)

    @property
    def trouble(self) -> str:
        """``wrong gradients: blocks.3 differs``; empty for a healthy cell."""
        summary = self.row.summary
        if summary.status == "ok":
            return ""
        return ": ".join(filter(None, (STATUS_WORDS.get(summary.status, summary.status), summary.reason)))

    def parts(self) -> dict[str, float]:
        """Bytes kept by part of the model."""
        sizes: dict[str, float] = {}
        for place in self.places:
            part = part_of(place.place)
            sizes[part] = sizes.get(part, 0.0) + place.bytes_
        return sizes


@dataclass(frozen=True)
class KeptView:
    """Every cell of one workload, in table order."""

    workload: Workload
    cells: tuple[KeptCell, ...]

    @property
    def explained_count(self) -> int:
        """How many cells have something to show."""
        return sum(cell.explained for cell in self.cells)

    def stacked(self) -> StackedView | None:
        """Bytes kept by part, the policy that keeps the most on top; None where no cell says where."""
        drawn = sorted((cell for cell in self.cells if cell.places), key=lambda c: -sum(c.parts().values()))
        if not drawn:
            return None
        bars = tuple(Bar(cell.row.summary.policy, cell.parts(), _price(cell.row)) for cell in drawn)
        found = {part for bar in bars for part in bar.parts}
        order = tuple(part for part in (*PART_COLOURS, _OTHER) if part in found)
        axis = "saved for backward"
        return StackedView(self.workload.label, axis, bars, order, PART_COLOURS, room=1.45)


def kept_views(comparison: Comparison) -> list[KeptView]:
    """One view per workload of which any cell explains what it kept; the one to show first comes first.

    That is the longest at which at least half as many cells as anywhere are explained: where
    recomputation matters the most and there is still something to compare.
    """
    views = []
    for workload in comparison.workloads:
        cells = tuple(_cell(row) for row in workload.rows)
        if any(cell.explained for cell in cells):
            views.append(KeptView(workload, cells))
    most = max((view.explained_count for view in views), default=0)
    return sorted(views, key=lambda v: (2 * v.explained_count < most, -v.workload.seq_len))


def charted(views: Sequence[KeptView]) -> list[StackedView]:
    """The picture of the first view of each group."""
    first: dict[str, KeptView] = {}
    for view in views:
        first.setdefault(view.workload.group, view)
    return [stacked for view in first.values() if (stacked := view.stacked())]


def part_of(place: str) -> str:
    """The part of the model that a place belongs to."""
    if place.startswith("embed"):
        return "residual stream"  # the input of the first block
    return _PARTS.get(place if place == "blocks.*" else place.rpartition(".")[2], _OTHER)


def replay_share(row: Row) -> float | None:
    """FLOPs that ran again over those that the step needs; None where not counted."""
    summary = row.summary
    if summary.recomputed_flops is None or not summary.model_flops:
        return None
    return summary.recomputed_flops / summary.model_flops


def _cell(row: Row) -> KeptCell:
    memory, flops = row.summary.memory, row.summary.flops
    return KeptCell(row, tuple(rules(memory, flops)), tuple(kept_places(memory)), tuple(ran_again(flops)))


def _price(row: Row) -> str:
    share = replay_share(row)
    words = "not counted" if share is None else f"+{share * 100:.1f} %"
    status = row.summary.status
    return words if status == "ok" else f"{words}, {STATUS_WORDS.get(status, status)}"

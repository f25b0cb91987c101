"""The section on what each policy kept: one line per policy, and the tables behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from analysis.detail import KeptPlace, RanAgain, Rule
from analysis.kept import KeptCell, KeptView, replay_share
from analysis.tables import Entry, Line, Table
from suite.units import show_bytes, show_count

_MOST_ROWS = 8

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class KeptRow:
    """One policy: what is read at a glance, and what it expands to. A table is None where it is empty."""

    policy: str
    is_reference: bool
    status: str
    saved: str
    share: str
    again: str
    sentence: str
    trouble: str
    rules: Table | None
    places: Table | None
    ran: Table | None

    @property
    def expands(self) -> bool:
        """Whether there is a table to show."""
        return bool(self.rules or self.places or self.ran)


@dataclass(frozen=True)
class KeptTable:
    """One workload; ``slug`` is unique in the page."""

    label: str
    slug: str
    rows: tuple[KeptRow, ...]


def kept_tables(views: Sequence[KeptView]) -> list[KeptTable]:
    """Of every view, in its order."""
    return [
        KeptTable(view.workload.label, view.workload.slug, tuple(_row(cell, view) for cell in view.cells))
        for view in views
    ]


def _row(cell: KeptCell, view: KeptView) -> KeptRow:
    summary = cell.row.summary
    whole = next((c.row.summary.saved_bytes for c in view.cells if c.row.is_reference), None)
    part = summary.saved_bytes / whole if whole and summary.saved_bytes is not None else None
    share = replay_share(cell.row)
    return KeptRow(
        policy=summary.policy,
        is_reference=cell.row.is_reference,
        status=summary.status,
        saved=show_bytes(summary.saved_bytes),
        share="" if part is None or cell.row.is_reference else f"{part * 100:.0f} %",
        again="-" if share is None else f"+{share * 100:.1f} % FLOPs",
        sentence=cell.sentence,
        trouble=cell.trouble,
        rules=_rules(cell.rules),
        places=_places(cell.places),
        ran=_ran(cell.again),
    )


def _rules(rules: Sequence[Rule]) -> Table | None:
    if not rules:
        return None
    hosted = any(rule.host_bytes for rule in rules)
    heads = [("Rule", ""), ("Hits", "num"), ("Kept", "num"), ("Spared, FLOP", "num")]
    heads += [("Replayed, FLOP", "num"), *([("On the host", "num")] if hosted else [])]
    lines = []
    for rule in rules:
        figures = [f"{rule.hits:,}", show_bytes(rule.kept_bytes), show_count(rule.spared_flops)]
        figures.append(show_count(rule.replayed_flops))
        figures += [show_bytes(rule.host_bytes)] if hosted else []
        lines.append(_line([rule.name], figures))
    return Table(tuple(heads), tuple(lines))


def _places(places: Sequence[KeptPlace]) -> Table | None:
    if not places:
        return None
    shown, rest = _split(places)
    lines = [_line([_place(p.place), p.operator], [f"{p.count:,}", show_bytes(p.bytes_)]) for p in shown]
    if rest:
        figures = [f"{sum(p.count for p in rest):,}", show_bytes(sum(p.bytes_ for p in rest))]
        lines.append(_line([f"{len(rest)} further", "-"], figures))
    return Table((("Kept in", ""), ("Operator", ""), ("Count", "num"), ("Bytes", "num")), tuple(lines))


def _ran(again: Sequence[RanAgain]) -> Table | None:
    if not again:
        return None
    shown, rest = _split(again)
    lines = [_line([_place(w.place), w.operator], [f"{w.calls:,}", show_count(w.flops)]) for w in shown]
    if rest:
        figures = [f"{sum(w.calls for w in rest):,}", show_count(sum(w.flops for w in rest))]
        lines.append(_line([f"{len(rest)} further", "-"], figures))
    return Table((("Ran again in", ""), ("Operator", ""), ("Calls", "num"), ("FLOP", "num")), tuple(lines))


def _split(found: Sequence[_Found]) -> tuple[Sequence[_Found], Sequence[_Found]]:
    """The first rows, and the rest; one row alone is shown rather than summed."""
    most = _MOST_ROWS if len(found) > _MOST_ROWS + 1 else len(found)
    return found[:most], found[most:]


def _line(names: Sequence[str], figures: Sequence[str]) -> Line:
    words = (Entry(name, style="words") for name in names)
    return Line("ok", (), (*words, *(Entry(text, style="num") for text in figures)))


def _place(place: str) -> str:
    return place or "the model itself"

"""The section on what each policy kept, for Markdown: nothing folds per policy, so three flat tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.kept import KeptView
from analysis.kept_tables import KeptTable
from analysis.tables import Entry, Line, Table

_MOST_PLACES = 3


@dataclass(frozen=True)
class KeptMarkdown:
    """One workload: a line per policy, a line per rule, and the largest places of each policy."""

    label: str
    overview: Table
    rules: Table
    places: Table


def kept_markdown(views: Sequence[KeptView], tables: Sequence[KeptTable]) -> list[KeptMarkdown]:
    """Of every workload, in the order of the page."""
    return [
        KeptMarkdown(view.workload.label, _overview(table), _rules(table), _places(table))
        for view, table in zip(views, tables, strict=True)
    ]


def _overview(table: KeptTable) -> Table:
    lines = []
    for row in table.rows:
        said = "; ".join(filter(None, (row.trouble, row.sentence))) or "-"
        tags = ("reference",) if row.is_reference else ()
        entries = (
            Entry(row.policy),
            Entry(row.saved),
            Entry(row.share or "-"),
            Entry(row.again),
            Entry(said),
        )
        lines.append(Line(row.status, tags, entries))
    heads = (("Policy", ""), ("Saved", "num"), ("Of the reference", "num"), ("Ran again", "num"))
    return Table((*heads, ("What it did", "")), tuple(lines))


def _rules(table: KeptTable) -> Table:
    found = [(row.policy, row.rules) for row in table.rows if row.rules]
    # A column that only some policies have is the last one.
    heads = max((rules.heads for _, rules in found), key=len, default=())
    lines = [
        Line("ok", (), (Entry(policy), *line.entries, *[Entry("-")] * (len(heads) - len(line.entries))))
        for policy, rules in found
        for line in rules.lines
    ]
    return Table((("Policy", ""), *heads), tuple(lines))


def _places(table: KeptTable) -> Table:
    lines = [
        Line("ok", (), (Entry(row.policy), Entry(_largest(row.places)), Entry(_largest(row.ran))))
        for row in table.rows
        if row.places or row.ran
    ]
    heads = (("Policy", ""), ("Kept the most in", ""), ("Ran the most again in", ""))
    return Table(heads, tuple(lines))


def _largest(table: Table | None) -> str:
    """``blocks.*.mlp.gate_up mm 22.0 MiB, ...``: place, operator, and bytes, FLOPs or else calls."""
    said = []
    for line in table.lines[:_MOST_PLACES] if table else ():
        place, operator, count, amount = (entry.text for entry in line.entries)
        said.append(f"{place} {operator} {amount if amount != '0' else f'{count} calls'}")
    return ", ".join(said) or "-"

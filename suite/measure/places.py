"""The same place of every block as one row: what was kept there, what ran there, and which rule did it.

A place is a module path with the block's index left out: ``blocks.*.attn.qkv``.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from suite.measure.tracker import Allocation
from suite.measure.work import Work
from suite.policies import Entry, Region

_INDEX = re.compile(r"^blocks\.(\d+)")


def place_of(module: str) -> str:
    """``blocks.*.attn`` from ``blocks.7.attn``."""
    return _INDEX.sub("blocks.*", module)


def kept_by_place(saved: Iterable[Allocation]) -> list[dict[str, Any]]:
    """Rows of ``place``, ``operator``, ``count`` and ``bytes`` of storages kept, largest first."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for a in saved:
        place = place_of(a.module)
        new = {"place": place, "operator": a.operator, "count": 0, "bytes": 0}
        row = rows.setdefault((place, a.operator), new)
        row["count"] += 1
        row["bytes"] += a.nbytes
    return sorted(rows.values(), key=lambda row: -int(row["bytes"]))


def work_by_place(work: Iterable[Work]) -> list[dict[str, Any]]:
    """Rows of ``place``, ``operator`` and the sums over blocks of the figures of :class:`Work`.

    Only of operators that have FLOPs or ran again.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for w in work:
        figures = {
            "forward_calls": w.forward_calls,
            "replay_calls": w.replay_calls,
            "forward_flops": w.forward_flops,
            "replay_flops": w.replay_flops,
        }
        place = place_of(w.module)
        new = {"place": place, "operator": w.operator, **dict.fromkeys(figures, 0)}
        row = rows.setdefault((place, w.operator), new)
        for name, value in figures.items():
            row[name] += value
    # What neither ran again nor has FLOPs tells nobody anything: mostly the making of positions.
    return [row for row in rows.values() if row["replay_calls"] or row["forward_flops"]]


def recomputed_blocks(work: Iterable[Work]) -> int:
    """In how many blocks anything ran again."""
    replayed = (w for w in work if w.replay_calls)
    return len({found.group(1) for w in replayed if (found := _INDEX.match(w.module))})


def outside_regions(saved: Iterable[Allocation], regions: Sequence[Region]) -> int:
    """Bytes kept that no region produced."""
    inside = tuple(f"{module}." for region in regions for module in region.modules)
    return sum(a.nbytes for a in saved if not f"{a.module}.".startswith(inside))


def entry_bytes(entries: Sequence[Entry], saved: Sequence[Allocation]) -> list[int]:
    """Bytes kept in each rule's scope; what several cover belongs to the first of them."""
    totals = [0] * len(entries)
    for a in saved:
        index = _first_covering(entries, a.module, a.operator)
        if index is not None:
            totals[index] += a.nbytes
    return totals


def entry_work(entries: Sequence[Entry], work: Iterable[Work]) -> list[dict[str, Any]]:
    """Of each rule: the forward FLOPs in its scope that no replay repeats (spared), and the rest."""
    rows: list[dict[str, Any]] = [{"name": e.name, "spared_flops": 0, "replayed_flops": 0} for e in entries]
    for w in work:
        index = _first_covering(entries, w.module, w.operator)
        if index is not None:
            rows[index]["spared_flops"] += w.forward_flops - w.replay_flops
            rows[index]["replayed_flops"] += w.replay_flops
    return rows


def _first_covering(entries: Sequence[Entry], module: str, operator: str) -> int | None:
    return next((i for i, entry in enumerate(entries) if entry.covers(module, operator)), None)

"""The figures and tables of a memory account, the same whether it was measured or predicted."""

import re
from collections.abc import Sequence
from typing import Any

from suite.measure.account import StepAccount
from suite.measure.places import entry_bytes, kept_by_place, outside_regions
from suite.policies import Entry, Region

_NUMBER = re.compile(r"(\d+)")


def entry_rows(entries: Sequence[Entry] | None, steady: StepAccount) -> list[dict[str, Any]]:
    """Each rule of a policy with its hits and what it kept, here and on the host."""
    assert entries is not None, "no forward has run"
    kept = entry_bytes(entries, steady.saved)
    return [
        {"name": e.name, "hits": e.hits, "kept_bytes": nbytes, "host_bytes": e.host_bytes}
        for e, nbytes in zip(entries, kept, strict=True)
    ]


def located_figures(steady: StepAccount, regions: Sequence[Region]) -> dict[str, float]:
    """Of the saved bytes, what needs to know which module made them."""
    in_blocks = steady.saved_under("blocks")
    return {
        "saved_in_blocks_bytes": in_blocks,
        "saved_outside_blocks_bytes": steady.saved_bytes - in_blocks,
        "saved_outside_regions_bytes": outside_regions(steady.saved, regions),
    }


def memory_figures(steady: StepAccount) -> dict[str, float]:
    """What needs no more than the account: peaks, ends of phases, and bytes by what they are for."""
    by_kind = steady.start_by_kind
    figures: dict[str, float] = {
        "peak_bytes": steady.peak_bytes,
        "static_bytes": steady.static_bytes,
        "parameter_bytes": by_kind.get("parameter", 0),
        "buffer_bytes": by_kind.get("buffer", 0),
        "optimizer_state_bytes": by_kind.get("optimizer_state", 0),
        "batch_bytes": by_kind.get("batch", 0),
        "activation_bytes": steady.activation_bytes,
        "saved_bytes": steady.saved_bytes,
    }
    figures |= {f"peak_{phase}_bytes": n for phase, n in steady.phase_peaks.items()}
    figures |= {f"after_{phase}_bytes": n for phase, n in steady.phase_ends.items()}
    return figures


def memory_detail(steady: StepAccount, regions: Sequence[Region]) -> dict[str, Any]:
    """What explains the figures: the peak, the curve, what was kept where, and what runs again."""
    top = steady.top_tensors()
    largest = top[0] if top else {"operator": "", "module": ""}
    return {
        "peak_phase": steady.peak_phase,
        "peak_operator": largest["operator"],
        "peak_module": largest["module"],
        "top_tensors": top,
        "phase_peaks": steady.phase_peaks,
        "peak_composition": steady.composition(),
        "live_bytes": [list(point) for point in steady.sampled_curve()],
        "regions": sorted((region.label for region in regions), key=_by_block),
        "kept": kept_by_place(steady.saved),
    }


def _by_block(label: str) -> list[tuple[bool, int, str]]:
    """``blocks.2`` before ``blocks.10``."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in _NUMBER.split(label)]

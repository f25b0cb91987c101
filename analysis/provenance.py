"""Where the figures of a report come from, and what they do not tell."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.load import RunData
from suite.cell import canonical
from suite.units import show_bytes

_MOST_WARNINGS = 20


@dataclass(frozen=True)
class Provenance:
    """``facts``: sections of (name, value); ``notes``: sentences on how to read the figures."""

    facts: dict[str, list[tuple[str, str]]]
    notes: list[str]
    warnings: list[tuple[str, int]]


def provenance(run: RunData) -> Provenance:
    """Everything needed to repeat or to doubt the sweep."""
    manifest = run.manifest
    first = run.records[0] if run.records else None
    budget = run.budget_bytes
    sweep = [
        ("command", str(manifest.get("command") or "not recorded")),
        ("state", str(manifest.get("state") or "not recorded")),
        ("started", str(manifest.get("created_at") or "not recorded")),
        ("last change", str(manifest.get("updated_at") or "not recorded")),
        ("cells", str(len(run.cells))),
        ("records", f"{run.records_count} valid, {len(run.invalid)} invalid"),
        ("passes", ", ".join(map(str, manifest.get("passes") or ())) or "not recorded"),
        ("rounds", str(manifest.get("rounds") or "not recorded")),
        ("reference policy", run.reference),
        ("memory budget", "none" if budget is None else f"{show_bytes(budget)} ({budget:,} B)"),
    ]
    facts = {"Sweep": sweep}
    for title, name in (("Protocol", "protocol"), ("Code", "code"), ("Machine", "fingerprint")):
        found = manifest.get(name) or (getattr(first, name) if first else {})
        facts[title] = _flat(found)
    warnings = Counter(str(warning) for record in run.records for warning in record.warnings)
    return Provenance(facts, _notes(run), warnings.most_common(_MOST_WARNINGS))


def _notes(run: RunData) -> list[str]:
    notes = [
        "Peak and saved bytes are of one training step after the first, in the process of the memory pass; "
        "time is taken in other processes, without any tracker.",
        f"A time ratio is the geometric mean of paired rounds against {run.reference}, or the policy named "
        "beside it, with a 95 % t-interval over rounds: a round is one fresh process and its figure is its "
        "median step. Only rounds that one session measured are paired.",
        "Saved bytes are what autograd and selective checkpointing keep from forward for backward; "
        "recomputed FLOP is the arithmetic executed beyond the model's own.",
        "Out of memory is a result: either the step did not run in the device's memory, or its measured "
        "peak exceeds the budget: the reason stands below the status.",
    ]
    meters = {str(r.detail["meter"]) for r in run.records if r.pass_ == "memory" and "meter" in r.detail}
    if "tracker" in meters:
        notes.append(
            "Bytes come from a tracker of live storages, each counted once: exact and repeatable, without "
            "the allocator's rounding and fragmentation."
        )
    if "allocator" in meters:
        notes.append("Bytes come from the device allocator's statistics (allocated, not reserved).")
    devices = {str(cell.config["device"]) for cell in run.cells}
    if "cpu" in devices:
        cores = {cell.config["threads"] for cell in run.cells if cell.config["device"] == "cpu"}
        threads = ", ".join(map(str, sorted(cores)))
        notes.append(
            f"Time was measured on a CPU with {threads} thread(s): trust the ratios, not the absolute "
            "times, and do not carry them over to an accelerator."
        )
    sources = {cell.peak_flops_source for cell in run.cells if cell.mfu_ratio is not None}
    rates = ", ".join(sorted(str(source) for source in sources if source))
    if sources:
        notes.append(f"MFU and HFU are relative to this dense peak: {rates or 'unnamed'}.")
    mute = sum(record.pass_ == "time" and not record.session for record in run.records)
    if mute:
        notes.append(f"{mute} rounds do not say which session measured them: they are paired by number.")
    for what, name in (("versions of the code", "code"), ("machines", "fingerprint")):
        kinds = {canonical(getattr(record, name)) for record in run.records}
        if len(kinds) > 1:
            notes.append(f"The records come from {len(kinds)} different {what}: compare them with care.")
    return notes


def _flat(value: object, prefix: str = "") -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        items: list[tuple[str, str]] = []
        for key, inner in value.items():
            items += _flat(inner, f"{prefix}.{key}" if prefix else str(key))
        return items
    return [(prefix, _plain(prefix, value))]


def _plain(name: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_plain(name, inner) for inner in value) or "none"
    if name.endswith("_bytes") and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{show_bytes(value)} ({value:,} B)"
    return "none" if value in (None, "") else str(value)

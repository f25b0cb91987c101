"""``plan=true``: what would run, how long it might take and what would not fit. Starts nothing."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from runners.eta import Estimated, estimated, weight
from runners.pool import leases
from runners.schedule import Rules, blocks, cell_keys, outstanding, redo_rule
from runners.text_table import TextTable
from suite.cell import Cell
from suite.config.schema import CellConfig, HardwareConfig, SessionConfig
from suite.record import Record
from suite.store import RecordStore
from suite.summary import CellSummary, summarise
from suite.units import show_bytes, show_count, show_seconds

# Without a measurement of this machine: what a training step usually gets out of it.
_CPU_FLOPS_PER_THREAD = 2e10
_SHARE_OF_PEAK = 0.4


def print_plan(
    cells: Sequence[Cell],
    session: SessionConfig,
    refused: Mapping[str, str],
    store: RecordStore,
    fingerprint: Mapping[str, Any],
    *,
    predict: Callable[[CellConfig], Estimated] = estimated,
    out: TextIO | None = None,
) -> None:
    """Print each cell's passes, those already measured, its peak and time, and the sums.

    A peak that is measured stands with its verdict; any other is an estimate and says so.
    """
    stream = out if out is not None else sys.stdout
    records = {record.key: record for record in store.records()}
    measured = summarise(records.values(), budget_bytes=session.budget_bytes, reference=session.reference)
    going = [cell for cell in cells if cell.id not in refused]
    rules = Rules(
        passes=lambda cell: session.passes_of(cell.id),
        rounds=session.rounds,
        budget_bytes=session.budget_bytes,
        records=records,
        redo=redo_rule(session.retry, "~" if "all" in session.retry else ""),
        reference=session.reference,
    )
    rate, source = flops_per_s(list(records.values()), session.hardware, going)
    seconds: dict[str, float] = {}
    again = 0
    for block in blocks(going, session.reference):
        rows, total = [], 0.0
        left = outstanding(block, rules)
        again += sum(rules.stands(key) is not None for todo in left.values() for key in todo)
        for cell in block:
            prediction, todo = predict(cell.config), left[cell.id]
            work = sum(weight(prediction.step_flops, key.pass_, session.trainer) for key in todo)
            total += work / rate
            known = {*cell_keys(cell, session.passes_of(cell.id), session.rounds)} & records.keys() - {
                *todo
            }
            rows.append(
                [
                    cell.policy_label,
                    str(len(todo)),
                    str(len(known)),
                    *_peak(measured.get(cell.id), prediction, session.budget_bytes),
                    show_count(prediction.step_flops or None),
                    show_seconds(work / rate if todo else None),
                ]
            )
        device = block[0].config.device
        seconds[device] = seconds.get(device, 0.0) + total
        headers = ("policy", "to run", "measured", "peak", "fits", "FLOP/step", "time")
        TextTable(block[0].workload_label, headers, rows).print(stream)
    for cell in cells:
        if cell.id in refused:
            stream.write(f"unsupported: {cell.policy_label}, {cell.workload_label}: {refused[cell.id]}\n")
    wall_s = sum(
        total / len(leases(fingerprint, device, session.device_ids)) for device, total in seconds.items()
    )
    passes = ", ".join(name if name != "time" else f"time x {session.rounds}" for name in session.passes)
    fewer = sum(cell.id in session.cell_passes for cell in cells)
    passes += f" (fewer for {fewer} cells)" if fewer else ""
    budget = f", budget {show_bytes(session.budget_bytes)}" if session.budget_bytes is not None else ""
    stream.write(
        f"\n{len(cells)} cells, {len(refused)} of them unsupported; passes: {passes}{budget}\n"
        f"{_said_again(again)}"
        "a peak with ~ is an estimate from formulas, not a measurement\n"
        f"{_duration(wall_s, rate, source)}; nothing was started\n"
    )
    stream.flush()


def _said_again(rounds: int) -> str:
    if not rounds:
        return ""
    return f"{rounds} measured rounds run again: only rounds of one session can be compared\n"


def _duration(wall_s: float, rate: float, source: str) -> str:
    if not wall_s:
        return "nothing is left to run"
    return f"at most about {show_seconds(wall_s)} at {show_count(rate)}FLOP/s ({source})"


def flops_per_s(
    records: Sequence[Record], hardware: HardwareConfig, cells: Sequence[Cell]
) -> tuple[float, str]:
    """The rate that turns FLOPs into seconds, and where it comes from."""
    executed = {r.cell: r.figures["executed_flops"] for r in records if "executed_flops" in r.figures}
    timed = [r for r in records if r.pass_ == "time" and r.status == "ok" and r.cell in executed]
    if timed:
        work = sum(executed[r.cell] for r in timed)
        return work / sum(r.figures["step_time_s"] for r in timed), "measured here"
    peaks = [hardware.peak_flops_per_s.get(cell.config.precision.partition("-")[0]) for cell in cells]
    known = [peak for peak in peaks if peak]
    if known and any(cell.config.device != "cpu" for cell in cells):
        return min(known) * _SHARE_OF_PEAK, f"{_SHARE_OF_PEAK:.0%} of the peak of {hardware.name}"
    threads = max((cell.config.threads for cell in cells), default=1)
    return _CPU_FLOPS_PER_THREAD * threads, f"assumed for {threads} CPU threads"


def _peak(measured: CellSummary | None, prediction: Estimated, budget_bytes: int | None) -> tuple[str, str]:
    """The peak, and whether it fits: of what was measured if anything was, else of the estimate."""
    if measured is not None and measured.status != "ok":
        peak = f"{show_bytes(measured.peak_bytes)} measured" if measured.peak_bytes is not None else "-"
        return peak, measured.status if measured.status != "oom" else "no: oom"
    if measured is not None and measured.peak_bytes is not None:
        return f"{show_bytes(measured.peak_bytes)} measured", "yes" if budget_bytes is not None else "-"
    if prediction.peak_bytes is None:
        return "-", "-"
    fits = "yes" if prediction.peak_bytes <= (budget_bytes or 0) else "no: oom"
    return f"~{show_bytes(prediction.peak_bytes)}", "-" if budget_bytes is None else fits

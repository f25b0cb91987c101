"""``python -m runners.gpu_check``: the prepared check for the day a card is at hand.

Runs ``+sweep=gpu_check`` and reduces its records to one JSON file and a short table. Needs Hydra, torch
and Lightning alone. ``--rehearse`` runs the same on the CPU in a small size. Further words are Hydra
overrides. Exit code: that of the sweep, or 4 if the cell that must run out of memory did not.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runners.text_table import TextTable
from suite.cell import config_of
from suite.predict.estimate import estimate
from suite.store import RecordStore, write_atomic
from suite.summary import CellSummary, summarise
from suite.units import show_bytes, show_seconds

# The only cell of the sweep with this kernel is the one that fits no card.
_MUST_NOT_FIT = "eager"


def main(argv: Sequence[str] | None = None) -> int:
    """Run, reduce, print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m runners.gpu_check", description=__doc__)
    parser.add_argument("--rehearse", action="store_true", help="a small size on the CPU")
    parser.add_argument("--runs", default="runs", help="where records go (paths.runs)")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides")
    arguments = parser.parse_args(argv)
    name = "gpu_rehearsal" if arguments.rehearse else "gpu_check"
    command = [sys.executable, "-m", "suite", f"+sweep={name}", f"sweep.name={name}"]
    command += [f"paths.runs={arguments.runs}", *arguments.overrides]
    code = subprocess.run(command, check=False).returncode
    store = RecordStore(Path(arguments.runs) / name)
    result = reduce(store)
    if result is None:
        return code or 3
    path = store.root / "gpu_check.json"
    write_atomic(path, json.dumps(result, indent=1) + "\n")
    _print(result, path)
    return code or (0 if result["ran_out_of_memory"] else 4)


def reduce(store: RecordStore) -> dict[str, Any] | None:
    """The sweep's records as one object; None if nothing was measured."""
    manifest = store.read_manifest()
    records = store.records()
    if manifest is None or not records:
        return None
    summaries = summarise(records, budget_bytes=None, reference=str(manifest["reference"]))
    cells = [summaries[c["id"]] for c in manifest["cells"] if c["id"] in summaries]
    tight = [c for c in cells if c.config["attention"] == _MUST_NOT_FIT]
    return {
        "fingerprint": manifest["fingerprint"],
        "code": manifest["code"],
        "ran_out_of_memory": bool(tight) and all(c.status == "oom" for c in tight),
        "cells": [_cell(summary) for summary in cells],
    }


def _cell(summary: CellSummary) -> dict[str, Any]:
    rounds = list(summary.rounds_s.values())
    return {
        "workload": summary.workload_label,
        "policy": summary.policy,
        "status": summary.status,
        "reason": summary.reason,
        "meter": summary.memory.detail.get("meter") if summary.memory else None,
        "memory": dict(summary.memory.figures) if summary.memory else {},
        "estimated_peak_bytes": estimate(config_of(summary.config)).peak_bytes,
        "parity": dict(summary.parity.figures) if summary.parity else {},
        "step_time_s": summary.step_time_s,
        "rounds_s": rounds,
        "spread_ratio": max(rounds) / min(rounds) - 1 if rounds else None,
        "tokens_per_s": summary.tokens_per_s,
    }


def _print(result: dict[str, Any], path: Path) -> None:
    rows = [
        [
            cell["policy"],
            " ".join(cell["workload"].split()[:2]),
            cell["status"],
            show_bytes(cell["memory"].get("peak_bytes")),
            show_bytes(cell["estimated_peak_bytes"]),
            show_seconds(cell["step_time_s"]),
            "-" if cell["spread_ratio"] is None else f"{cell['spread_ratio']:.1%}",
            f"{cell['parity'].get('max_grad_rel_diff', 0.0):.1e}" if cell["parity"] else "-",
        ]
        for cell in result["cells"]
    ]
    device = result["fingerprint"]
    headers = ["policy", "workload", "status", "peak", "estimate", "step", "spread", "gradients"]
    print()
    TextTable(f"{device.get('name')}, torch {device.get('torch')}", headers, rows, left=3).print()
    print(f"\n{path}")


if __name__ == "__main__":
    sys.exit(main())

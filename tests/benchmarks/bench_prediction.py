"""How long predictions take: one cell of an 8B model, and a sweep of 1,000 cells through the command line.

    python tests/benchmarks/bench_prediction.py [--repeats 3] [--cells 1000] [--out FILE]

The bars: 2 s on one core for a cell of Llama 3 8B, from the moment when torch is loaded; 60 s on two for
1,000 cells of one family, from the start of the program to its end. Each of the cells of 8B is predicted in a
fresh process that knows nothing yet. The third table says where the time of a cell goes: clocks are put
around the functions at work, in a process that has predicted each policy once before.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(HERE.parents[1])]

CELL_BAR_S, SWEEP_BAR_S = 2.0, 60.0
HARDWARE = "h100_80gb"
LARGE: dict[str, dict[str, Any]] = {
    "none": {"family": "none"},
    "full": {"family": "full"},
    "ops mm+attn": {"family": "ops", "save": "mm+attn"},
    "segments sqrt": {"family": "segments", "n": "sqrt"},
}
# Each runs as its file of conf/policy/ has it.
SWEPT = [
    "none",
    "full",
    "segments",
    "modules",
    "ops",
    "discard",
    "rebuild",
    "offload",
    "compressed",
    "tiled",
]
SEQ_LENS = [128 * n for n in range(1, 11)]
# Module and name of a function to the part of a cell's time that is spent in it.
PARTS = {
    ("suite.predict.cell", "trace_step"): "trace",
    ("suite.predict.cell", "account_step"): "account",
    ("suite.predict.cell", "replay"): "allocator",
    ("suite.predict.cell", "spread_log"): "layout",
    ("suite.predict.timed", "predict_time"): "time",
}
# The same within the trace.
TRACE_PARTS = {
    ("suite.predict.trace.compose", "shape_of"): "which blocks are alike",
    ("suite.predict.trace.compose", "run"): "forward and backward",
    ("suite.predict.trace.compose", "expand"): "laying out blocks",
    ("suite.predict.trace.compose", "trace_optimizer"): "optimizer",
    ("suite.predict.trace.compose", "lay_out_steps"): "laying out steps",
}


def _hardware() -> Any:
    import yaml

    from suite.config.schema import HardwareConfig

    return HardwareConfig(**yaml.safe_load((ROOT / f"conf/hardware/{HARDWARE}.yaml").read_text()))


def large_cell_s(policy: dict[str, Any]) -> float:
    """Seconds of one cell of Llama 3 8B in this process, on one core."""
    import torch
    from make_cell import make_cell

    from suite.predict.timed import predict_timed

    torch.set_num_threads(1)
    shape = {"seq_len": 8192, "batch_size": 1, "precision": "bf16-mixed", "device": "cuda"}
    cell, hardware = make_cell("llama3_8b", policy, **shape), _hardware()
    begin = time.perf_counter()
    predict_timed(cell.config, hardware=hardware)
    return time.perf_counter() - begin


def large_cells(repeats: int) -> dict[str, list[float]]:
    """Seconds by policy, each in a fresh process."""
    found: dict[str, list[float]] = {}
    for name in LARGE:
        command = [sys.executable, str(HERE), "--one", name]
        for _ in range(repeats):
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found.setdefault(name, []).append(float(done.stdout))
    return found


def sweep(cells: int) -> dict[str, Any]:
    """Wall seconds of a sweep of at least ``cells`` cells through the command line, and what it left."""
    from suite.store import RecordStore

    batches = range(1, -(-cells // (len(SWEPT) * len(SEQ_LENS))) + 1)
    axes: dict[str, Sequence[Any]] = {"policy": SWEPT, "seq_len": SEQ_LENS, "batch_size": batches}
    count = len(SWEPT) * len(SEQ_LENS) * len(batches)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "suite", "-m", "mode=predict", "model=llama_mini"]
        command += [f"hardware={HARDWARE}", "report=false", "tracking=none", f"paths.runs={folder}"]
        command += [f"{axis}={','.join(map(str, values))}" for axis, values in axes.items()]
        begin = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        wall_s = time.monotonic() - begin
        roots = [path.parent for path in Path(folder).glob("*/records")]
        records = [record for root in roots for record in RecordStore(root).records()]
    if done.returncode or len(records) != count:
        raise SystemExit(
            f"{len(records)} of {count} records, exit {done.returncode}: {done.stderr[-2000:]}"
        )
    in_cells_s = sum(record.wall_s or 0.0 for record in records)
    return {
        "cells": count,
        "wall_s": wall_s,
        "cells_per_s": count / wall_s,
        "in_cells_s": in_cells_s,
        "statuses": sorted({record.status for record in records}),
    }


class Clocks:
    """Seconds inside functions, which are replaced where their callers look them up."""

    def __init__(self) -> None:
        self.spent_s: dict[str, float] = {}

    def put_around(self, module: str, name: str, part: str) -> None:
        """Clock ``module.name`` as ``part``."""
        owner = sys.modules[module]
        setattr(owner, name, self._clocked(getattr(owner, name), part))

    def _clocked(self, inner: Callable[..., Any], part: str) -> Callable[..., Any]:
        def clocked(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self.spent_s[part] = self.spent_s.get(part, 0.0) + time.perf_counter() - begin

        return clocked


def shares() -> dict[str, Any]:
    """Mean seconds of a cell of the sweep by part, ``rest`` included, and those of the trace by its own."""
    import torch
    import yaml
    from make_cell import make_cell

    from suite.predict.timed import predict_timed

    torch.set_num_threads(1)
    policies = [yaml.safe_load((ROOT / f"conf/policy/{name}.yaml").read_text()) for name in SWEPT]
    hardware = _hardware()

    def predict_all(seq_len: int) -> dict[str, float]:
        seconds = {}
        for policy in policies:
            config = make_cell("llama_mini", dict(policy), seq_len=seq_len, device="cuda").config
            begin = time.perf_counter()
            predict_timed(config, hardware=hardware)
            seconds[policy["family"]] = time.perf_counter() - begin
        return seconds

    predict_all(64)
    clocks, inner = Clocks(), Clocks()
    for (module, name), part in PARTS.items():
        clocks.put_around(module, name, part)
    for (module, name), part in TRACE_PARTS.items():
        inner.put_around(module, name, part)
    by_policy = predict_all(128)
    total = sum(by_policy.values())
    mean = {part: spent / len(policies) for part, spent in clocks.spent_s.items()}
    mean["rest"] = (total - sum(clocks.spent_s.values())) / len(policies)
    within = {part: spent / len(policies) for part, spent in inner.spent_s.items()}
    return {"cell_s": total / len(policies), "parts_s": mean, "trace_s": within, "policies_s": by_policy}


def show(result: dict[str, Any]) -> None:
    """The tables for a person."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    large = Table(title="Llama 3 8B, s=8192 b=1 bf16-mixed, one cell in a fresh process", box=None)
    for name in ("policy", "median", "max"):
        large.add_column(name, justify="left" if name == "policy" else "right")
    for name, seconds in result["large_s"].items():
        large.add_row(name, f"{statistics.median(seconds):.2f} s", f"{max(seconds):.2f} s")
    console.print(large)
    console.print(f"bar {CELL_BAR_S:.0f} s: {'met' if result['large_met'] else 'MISSED'}\n")
    shared = result["shares"]
    parts = Table(title=f"A cell of the sweep: {1000 * shared['cell_s']:.0f} ms", box=None)
    for name in ("part", "ms", "share"):
        parts.add_column(name, justify="left" if name == "part" else "right")
    for indent, group in (("", shared["parts_s"]), ("  of the trace: ", shared["trace_s"])):
        for part, spent in group.items():
            parts.add_row(indent + part, f"{1000 * spent:.1f}", f"{spent / shared['cell_s']:.0%}")
    console.print(parts)
    found = result["sweep"]
    console.print(
        f"\n{found['cells']} cells through the command line: {found['wall_s']:.1f} s, "
        f"{found['cells_per_s']:.1f} cells/s, of which {found['in_cells_s']:.1f} s in cells on all cores "
        f"together; bar {SWEEP_BAR_S:.0f} s: {'met' if result['sweep_met'] else 'MISSED'}"
    )


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", choices=LARGE, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(large_cell_s(LARGE[arguments.one]))
        return
    large = large_cells(arguments.repeats)
    swept = sweep(arguments.cells)
    result = {
        "benchmark": "prediction",
        "cell_bar_s": CELL_BAR_S,
        "sweep_bar_s": SWEEP_BAR_S,
        "large_met": all(statistics.median(seconds) <= CELL_BAR_S for seconds in large.values()),
        "sweep_met": swept["wall_s"] <= SWEEP_BAR_S * swept["cells"] / 1000,
        "large_s": large,
        "sweep": swept,
        "shares": shares(),
        "cores": os.cpu_count(),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    show(result)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What a (cell, pass, round) costs beyond the child's own work, against a fresh interpreter.

    python tests/benchmarks/bench_orchestration.py [--children 60] [--fresh 5] [--out FILE]

A whole session over no-work children is run: lock, manifest, records, progress and all. A child's
overhead is what lies between the ends of two consecutive children, less the time inside
``measure`` as the child clocked it. The fresh interpreter imports torch and Lightning and ends.
Intervals are the 2.5 % and 97.5 % quantiles of 2,000 bootstrapped medians.
"""

import argparse
import contextlib
import io
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [
    str(HERE.parents[2]),
    str(HERE.parents[1]),
    str(HERE.parents[1] / "runners"),
    str(HERE.parent),
]

from runner_cases import NotingTracker, make_cell, make_session

from runners.forkserver import PRELOAD, ForkServer
from runners.session import run_session
from suite.measure import Measurement
from suite.store import RecordStore

BAR_S = 0.15
_RESAMPLES = 2000


def measure(cell, pass_, round_, session):
    """A little real torch work in the child; clocked, so that it can be subtracted."""
    begin = time.monotonic()
    import torch

    x = torch.randn(64, 64, requires_grad=True)
    (x @ x).sum().backward()
    figures = {"step_time_s": 1.0, "tokens_per_s": 1.0, "steps_count": 1.0}
    end = time.monotonic()
    return Measurement(figures=figures, detail={"work_s": end - begin, "end_s": end})


def warm_overheads_s(children: int) -> tuple[list[float], float]:
    """Seconds of each warm child beyond its own work, and of the first one with the server's start."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        server = ForkServer(preload=[PRELOAD, "bench_orchestration"])
        server.start()
        fingerprint = server.probe("auto")
        cold_s = time.monotonic() - begin
        with contextlib.redirect_stdout(io.StringIO()):
            code = run_session(
                [make_cell("none")],
                make_session(Path(folder), passes=("time",), rounds=children + 1),
                refused={},
                command="bench",
                server=server,
                fingerprint=fingerprint,
                tracker=NotingTracker(),
                report=None,
                measure="bench_orchestration:measure",
            )
        if code:
            raise SystemExit(f"the session ended with exit code {code}")
        records = sorted(RecordStore(Path(folder) / "night").records(), key=lambda r: r.round)
        server.stop()
    ends = [record.detail["end_s"] for record in records]
    work = [record.detail["work_s"] for record in records]
    return [end - before - w for before, end, w in zip(ends, ends[1:], work[1:], strict=False)], cold_s


def fresh_s(count: int) -> list[float]:
    """Seconds of an interpreter that imports what the server has preloaded, and does nothing."""
    command = [sys.executable, "-c", "import torch, lightning.pytorch"]
    times = []
    for _ in range(count):
        begin = time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.monotonic() - begin)
    return times


def summary(samples: list[float]) -> dict[str, object]:
    """Median, its bootstrapped interval and the extremes, in seconds."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(samples, k=len(samples))) for _ in range(_RESAMPLES))
    return {
        "count": len(samples),
        "median_s": statistics.median(samples),
        "interval_s": [medians[int(0.025 * _RESAMPLES)], medians[int(0.975 * _RESAMPLES) - 1]],
        "min_s": min(samples),
        "max_s": max(samples),
        "samples_s": samples,
    }


def show(result: dict[str, object]) -> None:
    """The table for a person."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Wall time per child beyond its own work", box=None)
    for name in ("", "n", "median", "95 % interval", "min", "max"):
        table.add_column(name, justify="left" if not name else "right")
    for name in ("forked", "fresh"):
        found = result[name]
        low, high = found["interval_s"]
        table.add_row(
            name,
            str(found["count"]),
            f"{found['median_s']:.3f} s",
            f"{low:.3f} to {high:.3f} s",
            f"{found['min_s']:.3f} s",
            f"{found['max_s']:.3f} s",
        )
    console = Console()
    console.print(table)
    verdict = "met" if result["met"] else "MISSED"
    console.print(f"server ready after {result['server_ready_s']:.2f} s; bar {BAR_S} s: {verdict}")


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--children", type=int, default=60)
    parser.add_argument("--fresh", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    overheads, cold_s = warm_overheads_s(arguments.children)
    forked, fresh = summary(overheads), summary(fresh_s(arguments.fresh))
    result = {
        "benchmark": "orchestration",
        "bar_s": BAR_S,
        "met": forked["median_s"] <= BAR_S,
        "server_ready_s": cold_s,
        "forked": forked,
        "fresh": fresh,
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

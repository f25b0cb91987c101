"""What mirroring one cell in MLflow costs the parent: warm, on the default sqlite store.

    python tests/benchmarks/bench_tracking.py [--cells 40] [--out FILE.json]

The bar is 60 ms a cell (median). Each cell has six records, five logs and 600 memory events.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "suite" / "tracking")]
from tracking_builders import Sweep, cell_of

from suite.config.schema import PathsConfig, TrackingConfig
from suite.store import RecordStore
from suite.tracking import open_tracker

BAR_S = 0.060
WARM_UP_CELLS = 3


def measure(folder: Path, cells: int) -> dict[str, list[tuple[float, float]]]:
    """Wall and CPU seconds of each call, by what it did."""
    sweep = Sweep(RecordStore(folder / "bench"), "bench")
    for n in range(cells + WARM_UP_CELLS):
        sweep.measure(cell_of("segments", {"n": n + 1}))
    summaries = list(sweep.summaries().values())
    seconds: dict[str, list[tuple[float, float]]] = {}

    def timed(name: str, call: Callable[..., None], *arguments: object) -> None:
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        call(*arguments)
        spent = (time.perf_counter() - wall_s, time.process_time() - cpu_s)
        seconds.setdefault(name, []).append(spent)

    tracker = open_tracker(TrackingConfig(), PathsConfig(str(folder)))
    timed("open, fresh database and import", tracker.open, sweep.manifest())
    for n, summary in enumerate(summaries):
        timed("cell, first ones" if n < WARM_UP_CELLS else "cell, new", tracker.cell, summary, sweep.store)
    timed("close", tracker.close, sweep.manifest("finished"), None)
    again = open_tracker(TrackingConfig(), PathsConfig(str(folder)))
    timed("open, resumed", again.open, sweep.manifest())
    for summary in summaries:
        timed("cell, already there", again.cell, summary, sweep.store)
    for cell in sweep.cells[:10]:
        sweep.write(cell, "time", 3)
    changed = sweep.summaries()
    for cell in sweep.cells[:10]:
        timed("cell, one round more", again.cell, changed[cell.id], sweep.store)
    assert tracker.pending == again.pending == 0
    return seconds


def main() -> None:
    """Measure, print the table, and write JSON where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=int, default=40)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds = measure(Path(folder), arguments.cells)
    table = Table("call", "calls", "median ms", "worst ms", "median CPU ms", title="MLflow mirror, sqlite")
    figures = {}
    for name, values in seconds.items():
        walls_s, cpus_s = zip(*values, strict=True)
        times_s = (statistics.median(walls_s), max(walls_s), statistics.median(cpus_s))
        names = ("median_s", "worst_s", "median_cpu_s")
        figures[name] = {"calls_count": len(values), **dict(zip(names, times_s, strict=True))}
        table.add_row(name, str(len(values)), *(f"{time_s * 1e3:.1f}" for time_s in times_s))
    Console().print(table)
    met = figures["cell, new"]["median_s"] <= BAR_S
    Console().print(f"bar: a new cell in {BAR_S * 1e3:.0f} ms: {'met' if met else 'not met'}")
    if arguments.out:
        arguments.out.write_text(
            json.dumps({"bar_s": BAR_S, "met": met, "calls": figures}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()

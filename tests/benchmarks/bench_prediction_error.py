"""Predicted against measured memory of randomly drawn cells on the CPU: the bar is 0 bytes of difference.

    python tests/benchmarks/bench_prediction_error.py [--cells 240] [--seed 1] [--out FILE]

Every cell is predicted, and measured by the memory pass in this process. Cells that are refused while they
run must be refused by the prediction too; they count apart. Exit code 1 where any figure differs.
"""

import argparse
import json
import platform
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[1])]

import torch
from make_cell import make_session
from random_cells import random_cells
from rich.console import Console
from rich.table import Table

from suite.cell import Cell
from suite.errors import Unsupported
from suite.measure import Measurement, measure
from suite.predict.cell import predict_cell
from suite.store import write_atomic

FIGURES = ("peak_bytes", "saved_bytes", "first_step_peak_bytes", "host_peak_bytes")


def compared(cell: Cell) -> dict[str, Any]:
    """The cell's differences in bytes, predicted less measured, and the seconds of either."""
    begin = time.perf_counter()
    measured = _outcome(lambda: measure(cell, "memory", 0, make_session()))
    middle = time.perf_counter()
    predicted = _outcome(lambda: predict_cell(cell.config))
    end = time.perf_counter()
    row: dict[str, Any] = {
        "cell": f"{cell.policy_label}, {cell.workload_label}",
        "depth": cell.config.model.n_layers,
        "measured_s": middle - begin,
        "predicted_s": end - middle,
    }
    if measured is None or predicted is None:
        row["status"] = "refused" if measured is predicted else "refused by one only"
        return row
    differences = {
        name: predicted.figures.get(name, 0) - value
        for name, value in measured.figures.items()
        if name in FIGURES
    }
    all_equal = all(predicted.figures.get(name) == value for name, value in measured.figures.items())
    return row | {"status": "compared", "differences": differences, "all_equal": all_equal}


def _outcome(run: Any) -> Measurement | None:
    try:
        found: Measurement = run()
    except Unsupported:
        return None
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of exact cells by figure, and the worst of each."""
    cells = [row for row in rows if row["status"] == "compared"]
    by_figure = {}
    for name in FIGURES:
        found = [row["differences"][name] for row in cells if name in row["differences"]]
        by_figure[name] = {
            "compared": len(found),
            "exact": found.count(0),
            "worst_bytes": max(map(abs, found), default=0),
        }
    return {
        "cells": len(cells),
        "all_memory_figures_equal": sum(row["all_equal"] for row in cells),
        "statuses": dict(Counter(row["status"] for row in rows)),
        "figures": by_figure,
        "different": [row for row in rows if not row.get("all_equal", row["status"] == "refused")],
    }


def show(result: dict[str, Any]) -> None:
    """The table for a person."""
    table = Table(title="Predicted less measured bytes", box=None)
    for name in ("", "cells", "exact", "worst"):
        table.add_column(name, justify="left" if not name else "right")
    for name, found in result["figures"].items():
        table.add_row(name, str(found["compared"]), str(found["exact"]), str(found["worst_bytes"]))
    console = Console()
    console.print(table)
    console.print(
        f"{result['all_memory_figures_equal']} of {result['cells']} cells are equal in every figure of the "
        f"memory pass; {result['statuses']}; bar 0 bytes: {'met' if result['met'] else 'MISSED'}"
    )
    for row in result["different"]:
        console.print(f"{row['cell']} depth={row['depth']}: {row.get('differences', row['status'])}")


def main() -> int:
    """Draw, predict, measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [compared(cell) for cell in random_cells(arguments.seed, arguments.cells)]
    found = summary(rows)
    peaks = found["figures"]["peak_bytes"], found["figures"]["saved_bytes"]
    result = {
        "benchmark": "prediction_error",
        "met": all(f["exact"] == f["compared"] for f in peaks)
        and "refused by one only" not in found["statuses"],
        "seed": arguments.seed,
        **found,
        "rows": rows,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    show(result)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(arguments.out, json.dumps(result, indent=1) + "\n")
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())

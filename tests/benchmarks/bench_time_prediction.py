"""Predicted against measured time ratios of the long-sequence sweep: the bar is 5 % median, 15 % at worst.

    python tests/benchmarks/bench_time_prediction.py [--threads 1] [--out bench/time_prediction.json]

Calibrates the CPU, measures the operators of each workload in steps that keep everything, and predicts every
cell of conf/sweep/long_seq.yaml at conf/scale/cpu.yaml, twice: from the rates alone, and from the measured
operators. Then runs real steps of all policies of a workload in turn, in one process with pinned threads. A
policy's measured ratio is the median over turns of its step against the reference's of the same turn.
"""

import argparse
import gc
import json
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console
from rich.table import Table

from suite.cell import Cell
from suite.config.schema import CellConfig, DataConfig, ModelConfig, OptimizerConfig
from suite.policies import parse_policy
from suite.predict.time.calibrate import calibrate
from suite.predict.time.measured import Steps, measure_operators
from suite.predict.time.rates import Rates
from suite.predict.time.roofline import predict_time
from suite.predict.trace.compose import trace_step
from suite.store import write_atomic
from suite.units import show_seconds

CONF = Path(__file__).parents[2] / "conf"
MEDIAN_BAR, WORST_BAR = 0.05, 0.15
MODES = ("operators", "rates")


def workloads(threads: int) -> list[list[CellConfig]]:
    """The sweep's cells, those of one workload together, the reference first."""
    sweep = yaml.safe_load((CONF / "sweep/long_seq.yaml").read_text())
    scale = yaml.safe_load((CONF / "scale/cpu.yaml").read_text())
    given = dict(text.split("=") for text in scale["overrides"])
    model = ModelConfig(**yaml.safe_load((CONF / "model" / f"{given['model']}.yaml").read_text()))
    lengths, kernels = sweep["products"]
    sizes = [(length, "sdpa", lengths) for length in scale["seq_lens"]]
    sizes += [(scale["kernel_seq_len"], kernel, kernels) for kernel in kernels["attention"]]
    return [
        [
            CellConfig(
                model=model,
                policy=parse_policy(policy_of(text)),
                seq_len=seq_len,
                batch_size=int(given["batch_size"]),
                precision="fp32",
                attention=attention,
                compile="none",
                optimizer=OptimizerConfig(impl=given["optimizer.impl"]),
                data=DataConfig(),
                device="cpu",
                threads=threads,
                seed=0,
            )
            for text in product["policy"]
        ]
        for seq_len, attention, product in sizes
    ]


def policy_of(text: str) -> dict[str, Any]:
    """``{family: blocks, every_n: 2}`` from ``blocks policy.every_n=2``."""
    family, *options = text.split()
    pairs = (option.removeprefix("policy.").split("=") for option in options)
    return {"family": family, **{name: yaml.safe_load(value) for name, value in pairs}}


def measured_ratios(configs: list[CellConfig], turns: int) -> tuple[list[float], list[float]]:
    """Median step seconds, and median ratio to the first, of real steps in turn."""
    steps = [Steps(config) for config in configs]
    took: list[list[float]] = [[] for _ in steps]
    for turn in range(turns + 1):
        order = range(len(steps))
        for index in order if turn % 2 else reversed(order):
            steps[index].timed()  # after another policy's step, the allocator is as that one left it
            pair = [sum(steps[index].timed().values()) for _ in range(2)]
            if turn:
                took[index].append(min(pair))
    ratios = [statistics.median(a / b for a, b in zip(own, took[0], strict=True)) for own in took]
    return [statistics.median(own) for own in took], ratios


def rows_of(configs: list[CellConfig], rates: Rates, turns: int) -> list[dict[str, Any]]:
    """Every cell of one workload but the reference, predicted and measured."""
    start = time.perf_counter()
    table = measure_operators(configs[0])
    print(f"operators of {Cell(configs[0]).workload_label}: {time.perf_counter() - start:.1f} s")
    traces = [trace_step(config) for config in configs]
    predicted = {
        mode: [
            predict_time(trace, config, rates, table if mode == "operators" else None).step_time_s
            for trace, config in zip(traces, configs, strict=True)
        ]
        for mode in MODES
    }
    seconds, ratios = measured_ratios(configs, turns)
    gc.collect()
    rows = []
    for index, config in enumerate(configs):
        row = {
            "workload": f"s={config.seq_len} {config.attention}",
            "policy": Cell(config).policy_label,
            "measured_step_time_s": seconds[index],
            "measured_ratio": ratios[index],
        }
        for mode in MODES:
            ratio = predicted[mode][index] / predicted[mode][0]
            row[f"{mode}_step_time_s"] = predicted[mode][index]
            row[f"{mode}_ratio"] = ratio
            row[f"{mode}_error"] = ratio / ratios[index] - 1
        rows.append(row)
    return rows


def summary(rows: list[dict[str, Any]], mode: str) -> dict[str, float]:
    """Of the ratios' errors, the references left out; and of the step times'."""
    errors = [abs(row[f"{mode}_error"]) for row in rows if row["policy"] != "none"]
    steps = [abs(row[f"{mode}_step_time_s"] / row["measured_step_time_s"] - 1) for row in rows]
    return {
        "ratio_median_error": statistics.median(errors),
        "ratio_worst_error": max(errors),
        "step_median_error": statistics.median(steps),
        "step_worst_error": max(steps),
    }


def table_of(rows: list[dict[str, Any]]) -> Table:
    """The rows as people read them."""
    found = Table(title="time against none of the same workload")
    heads = ("workload", "policy", "step", "measured", "operators", "error", "rates", "error")
    for index, head in enumerate(heads):
        found.add_column(head, justify="left" if index < 2 else "right")
    for row in rows:
        shown = [row["workload"], row["policy"], show_seconds(row["measured_step_time_s"])]
        shown.append(f"{row['measured_ratio']:.3f}")
        for mode in MODES:
            shown += [f"{row[f'{mode}_ratio']:.3f}", f"{row[f'{mode}_error']:+.1%}"]
        found.add_row(*shown)
    return found


def main() -> None:
    """Calibrate, predict, measure, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench/time_prediction.json"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    start = time.perf_counter()
    rates = calibrate("cpu", options.threads)
    calibration_s = time.perf_counter() - start
    rows = [row for configs in workloads(options.threads) for row in rows_of(configs, rates, options.turns)]
    figures = {
        "rows": rows,
        "summary": {mode: summary(rows, mode) for mode in MODES},
        "calibration_s": calibration_s,
        "rates": asdict(rates),
        "median_bar": MEDIAN_BAR,
        "worst_bar": WORST_BAR,
        "turns_count": options.turns,
        "threads_count": options.threads,
        "torch": torch.__version__,
    }
    write_atomic(options.out, json.dumps(figures, indent=1) + "\n")
    console = Console(width=130)
    console.print(table_of(rows))
    console.print(f"calibration: {show_seconds(calibration_s)}")
    for mode in MODES:
        found = figures["summary"][mode]
        within = found["ratio_median_error"] <= MEDIAN_BAR and found["ratio_worst_error"] <= WORST_BAR
        console.print(
            f"from {mode}: median error of the ratio {found['ratio_median_error']:.1%}, worst "
            f"{found['ratio_worst_error']:.1%}: {'within' if within else 'ABOVE'} the bar of {MEDIAN_BAR:.0%} and "
            f"{WORST_BAR:.0%}; of the step {found['step_median_error']:.1%} and {found['step_worst_error']:.1%}"
        )


if __name__ == "__main__":
    main()

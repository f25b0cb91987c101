"""What Lightning's loop costs per step against a loop written out: the bar is 1 % at 50 ms steps.

    python tests/benchmarks/bench_loop_overhead.py [--out bench/loop_overhead.json]

Both loops train the same model on the same batches in one process, on one thread. They run in pairs of
short stretches, in alternating order, so that what else the machine does falls on both. The figure of a
pair compares the medians of its steps; the headline is the median over pairs with a bootstrap interval,
by the wall clock and in processor time, which waiting for a busy machine does not lengthen. The cost of
a step is measured once more where the step does not drown it: on a model whose steps take a millisecond.
"""

import argparse
import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy import stats

from suite.config.schema import CellConfig, DataConfig, ModelConfig, OptimizerConfig, PolicyConfig
from suite.models import build_model
from suite.store import write_atomic
from suite.training.data import Batch, batches
from suite.training.loop import StepObserver, train
from suite.training.optimizers import build_optimizer
from suite.training.step import model_loss
from suite.units import show_seconds

BAR = 0.01
TARGET_STEP_S = 0.05


def cell(d_model: int, n_layers: int, seq_len: int) -> CellConfig:
    """A small Llama on the CPU."""
    model = ModelConfig(
        name="bench",
        family="llama",
        vocab_size=256,
        n_layers=n_layers,
        d_model=d_model,
        n_heads=4,
        n_kv_heads=2,
        d_ff=3 * d_model,
        max_seq_len=seq_len,
    )
    return CellConfig(
        model=model,
        policy=PolicyConfig("none"),
        seq_len=seq_len,
        batch_size=1,
        precision="fp32",
        attention="sdpa",
        compile="none",
        optimizer=OptimizerConfig(),
        data=DataConfig(),
        device="cpu",
        threads=torch.get_num_threads(),
        seed=0,
    )


class Clock(StepObserver):
    """Wall-clock and processor seconds at which each step began."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []

    def tick(self) -> None:
        """Note the time."""
        self.times.append((time.perf_counter(), time.process_time()))

    def on_step_start(self, index: int, batch: Batch) -> None:
        """Note the time."""
        self.tick()

    def steps(self) -> np.ndarray:
        """(steps, 2): wall-clock and processor seconds from each step's start to the next one's."""
        return np.diff(np.array(self.times), axis=0)


def lightning_steps(model: torch.nn.Module, config: CellConfig, count: int) -> np.ndarray:
    """``count`` steps of Lightning's loop."""
    clock = Clock()
    train(model, config, clock, count + 1)
    return clock.steps()


def bare_steps(model: torch.nn.Module, config: CellConfig, count: int) -> np.ndarray:
    """``count`` steps of a loop written out."""
    clock = Clock()
    optimizer = build_optimizer(model.parameters(), config.optimizer)
    for batch in islice(batches(config), count + 1):
        clock.tick()
        model_loss(model, batch, lambda phase: None).backward()
        optimizer.step()
        optimizer.zero_grad()
    return clock.steps()


def paired(config: CellConfig, pairs: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Median step of each pair, bare and under Lightning: two arrays of (pairs, 2) seconds."""
    torch.manual_seed(0)
    model = build_model(config)
    loops = (bare_steps, lightning_steps)
    for loop in loops:
        loop(model, config, 3)
    rows = []
    for pair in range(pairs):
        order = (0, 1) if pair % 2 == 0 else (1, 0)
        medians = {which: np.median(loops[which](model, config, count), axis=0) for which in order}
        rows.append((medians[0], medians[1]))
    bare, lightning = np.array(rows).transpose(1, 0, 2)
    return bare, lightning


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Median and its 95 % bootstrap interval."""
    found = stats.bootstrap(
        (values,), np.median, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return float(np.median(values)), float(found.low), float(found.high)


def fixed_costs(config: CellConfig, repeats: int) -> np.ndarray:
    """Seconds of ``train`` besides its steps, of each of ``repeats`` calls after a first one."""
    model = build_model(config)
    costs = []
    for _ in range(repeats + 1):
        clock = Clock()
        start = time.perf_counter()
        train(model, config, clock, 2)
        costs.append(time.perf_counter() - start - 2 * clock.steps()[0, 0])
    return np.array(costs[1:])


def near_target() -> CellConfig:
    """The sequence length whose bare step comes nearest to the target in processor time."""
    found = []
    for length in (64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048):
        config = cell(192, 6, length)
        step = float(np.median(bare_steps(build_model(config), config, 6)[:, 1]))
        found.append((abs(step - TARGET_STEP_S), config))
        if step > TARGET_STEP_S:
            break
    return min(found, key=lambda pair: pair[0])[1]


def measure(pairs: int) -> dict[str, Any]:
    """Every figure; a triple is a median and the ends of its interval."""
    config = near_target()
    bare, lightning = paired(config, pairs, count=8)
    ratios = lightning / bare - 1
    tiny = cell(16, 1, 8)
    tiny_bare, tiny_lightning = paired(tiny, pairs, count=60)
    cost = interval((tiny_lightning - tiny_bare)[:, 1])
    return {
        "bare_step_s": float(np.median(bare[:, 0])),
        "bare_step_processor_s": float(np.median(bare[:, 1])),
        "overhead_wall_ratio": interval(ratios[:, 0]),
        "overhead_processor_ratio": interval(ratios[:, 1]),
        "step_cost_processor_s": cost,
        "step_cost_at_target_ratio": [value / TARGET_STEP_S for value in cost],
        "fixed_cost_s": interval(fixed_costs(tiny, 20)),
        "target_step_s": TARGET_STEP_S,
        "bar_ratio": BAR,
        "pairs_count": pairs,
        "seq_len_count": config.seq_len,
        "threads_count": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def table(figures: dict[str, Any]) -> Table:
    """The figures as people read them."""
    found = Table(title=f"Lightning's loop against a bare loop, {figures['pairs_count']} interleaved pairs")
    for name in ("figure", "median", "95 % interval"):
        found.add_column(name, justify="left" if name == "figure" else "right")
    wall, processor = figures["bare_step_s"], figures["bare_step_processor_s"]
    found.add_row("step of the bare loop, wall clock", show_seconds(wall), "")
    found.add_row("step of the bare loop, processor time", show_seconds(processor), "")
    for label, key, show in (
        ("overhead at that step, wall clock", "overhead_wall_ratio", "{:+.2%}".format),
        ("overhead at that step, processor time", "overhead_processor_ratio", "{:+.2%}".format),
        ("cost of a step, processor time", "step_cost_processor_s", show_seconds),
        ("the same as a share of 50 ms", "step_cost_at_target_ratio", "{:+.2%}".format),
        ("cost of a training besides its steps", "fixed_cost_s", show_seconds),
    ):
        median, low, high = figures[key]
        found.add_row(label, show(median), f"{show(low)} to {show(high)}")
    return found


def main() -> None:
    """Measure, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench/loop_overhead.json"))
    parser.add_argument("--pairs", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = measure(options.pairs)
    write_atomic(options.out, json.dumps(figures, indent=1) + "\n")
    console = Console()
    console.print(table(figures))
    console.print(f"bar: {BAR:.0%} at {TARGET_STEP_S * 1e3:.0f} ms; figures in {options.out}")


if __name__ == "__main__":
    main()

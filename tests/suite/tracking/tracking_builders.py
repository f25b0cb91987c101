"""Records as the passes write them, with figures computed from a seed: nothing here is measured."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from make_cell import base_config

from suite.cell import Cell
from suite.config.schema import ModelConfig, PolicyConfig
from suite.record import Record
from suite.store import RecordStore
from suite.summary import CellSummary, summarise

CREATED_AT = "2026-03-01T08:00:00+00:00"
CODE = {"version": "0.1.0", "source_digest": "0" * 64, "git": "f" * 40, "dirty": False}
FINGERPRINT = {"type": "cpu", "name": "Test CPU", "torch": "2.13.0"}


def cell_of(
    policy: str, options: dict[str, Any] | None = None, *, seq_len: int = 512, model: str = "llama_mini"
) -> Cell:
    shape = ModelConfig(model, "llama", 512, 2, 64, 4, 2, 176, 4096, source="for tests")
    return Cell(base_config(shape, policy=PolicyConfig(policy, options or {}), seq_len=seq_len))


def live_bytes(peak: int, events: int = 600) -> list[tuple[int, int, str]]:
    """Up to ``peak`` through the forward pass and down again through the others."""
    half = events // 2
    series = []
    for index in range(events):
        phase = "forward" if index < half else "loss" if index < half + 20 else "backward"
        phase = "optimizer" if index >= events - 50 else phase
        height = peak * min(index, 2 * half - index) // half
        series.append((index, height, phase))
    return series


@dataclasses.dataclass
class Sweep:
    """A sweep on disk."""

    store: RecordStore
    name: str = "long_seq"
    created_at: str = CREATED_AT
    budget_bytes: int | None = None
    cells: list[Cell] = dataclasses.field(default_factory=list)

    def write(self, cell: Cell, pass_: str, round_: int = 0, status: str = "ok", **changes: Any) -> Record:
        if cell not in self.cells:
            self.cells.append(cell)
        size = 1000 * cell.config.seq_len * {"none": 3, "full": 1}.get(cell.config.policy.family, 2)
        figures: dict[str, float] = _FIGURES[pass_](size, round_)
        detail: dict[str, Any] = {}
        if pass_ == "memory":
            detail = {"peak_phase": "loss", "live_bytes": live_bytes(size)}
        minute, second = divmod(len(self.cells) * 10 + 2 * round_, 60)
        values: dict[str, Any] = {
            "figures": figures if status == "ok" else {},
            "detail": detail if status == "ok" else {},
            "error": None
            if status == "ok"
            else {"type": "Error", "message": f"ended {status}", "where": "x.py:1"},
            "started_at": f"2026-03-01T08:{minute:02d}:{second:02d}.250+00:00",
            "wall_s": 1.5,
            **changes,
        }
        record = Record(
            cell.id,
            cell.workload_id,
            pass_,
            round_,
            cell.resolved,
            {"steps": 5},
            CODE,
            FINGERPRINT,
            status,
            **values,
        )
        self.store.write(record)
        log = self.store.log_path(record.key)
        log.parent.mkdir(exist_ok=True)
        log.write_text("" if pass_ == "flops" else f"log of {record.key}\n")
        return record

    def measure(self, cell: Cell, rounds: int = 3) -> Cell:
        for pass_ in ("memory", "flops", "parity"):
            self.write(cell, pass_)
        for round_ in range(rounds):
            self.write(cell, "time", round_)
        return cell

    def summaries(self) -> dict[str, CellSummary]:
        return summarise(self.store.records(), budget_bytes=self.budget_bytes)

    def manifest(self, state: str = "running") -> dict[str, Any]:
        return {
            "schema": 1,
            "name": self.name,
            "cells": [{"id": c.id, "workload": c.workload_id, "config": c.resolved} for c in self.cells],
            "code": CODE,
            "fingerprint": FINGERPRINT,
            "budget_bytes": self.budget_bytes,
            "reference": "none",
            "command": "python -m suite +sweep=long_seq",
            "created_at": self.created_at,
            "updated_at": "2026-03-01T08:02:00+00:00",
            "state": state,
        }


def small_sweep(runs: Path, name: str = "long_seq", **changes: Any) -> Sweep:
    """Two measured cells and one that crashed."""
    sweep = Sweep(RecordStore(runs / name), name, **changes)
    sweep.measure(cell_of("none"))
    sweep.measure(cell_of("full", {"early_stop": True}))
    sweep.write(cell_of("segments", {"n": "sqrt"}), "memory", status="crash")
    return sweep


_FIGURES: dict[str, Callable[[int, int], dict[str, float]]] = {
    "memory": lambda size, _: {
        "peak_bytes": 2 * size,
        "saved_bytes": size,
        "static_bytes": 4096,
        "activation_bytes": size,
        "peak_forward_bytes": size,
    },
    "flops": lambda size, _: {
        "model_flops": 10**9,
        "executed_flops": 10**9 + size,
        "recomputed_flops": size,
    },
    "parity": lambda *_: {"max_grad_abs_diff": 0.0, "parameters_compared_count": 21},
    "time": lambda size, round_: {
        "step_time_s": 0.25 + round_ / 64,
        "tokens_per_s": 4096.0 - 64 * round_,
        "steps_count": 5,
        "peak_flops_per_s": 1e11,
    },
}

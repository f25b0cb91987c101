"""Valid records of one cell, from which a test breaks what it is about."""

import dataclasses
from typing import Any

from make_cell import make_cell

from suite.cell import Cell
from suite.record import Record

FIGURES: dict[str, dict[str, float]] = {
    "memory": {"peak_bytes": 100, "static_bytes": 10, "activation_bytes": 50, "saved_bytes": 40},
    "flops": {"model_flops": 1000, "executed_flops": 1250, "recomputed_flops": 250},
    "parity": {"max_grad_abs_diff": 0.0, "parameters_compared_count": 9},
    "time": {"step_time_s": 0.5, "tokens_per_s": 128.0, "steps_count": 3, "peak_flops_per_s": 1e4},
}


def record(
    pass_: str = "memory", *, cell: Cell | None = None, round_: int = 0, status: str = "ok", **changes: Any
) -> Record:
    """A record that validates; an unhealthy one has an error."""
    of = cell or make_cell(policy={"family": "full"})
    error = None if status == "ok" else {"type": "T", "message": f"{status}!", "where": "here"}
    plain = Record(
        cell=of.id,
        workload=of.workload_id,
        pass_=pass_,
        round=round_,
        config=of.resolved,
        protocol={},
        code={},
        fingerprint={},
        status=status,
        figures=FIGURES[pass_] if status == "ok" else {},
        detail={"peak_phase": "backward"} if pass_ == "memory" else {},
        error=error,
        started_at="2026-01-01T00:00:00+00:00",
        wall_s=1.5,
    )
    return dataclasses.replace(plain, **changes)

"""The passes over a cell: each in a process of its own, each an answer to one question.

:data:`PASSES` maps a pass's name to the function that takes it. Importable without torch; a pass
imports what it needs when it is taken.
"""

import importlib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suite.cell import Cell
from suite.config.schema import SessionConfig
from suite.training.compile_cache import private_cache

PASSES = {
    "predict": "suite.predict.take",
    "memory": "suite.measure.memory",
    "flops": "suite.measure.flops",
    "parity": "suite.measure.parity",
    "time": "suite.measure.time",
}


@dataclass(frozen=True)
class Measurement:
    """What a pass found. ``status`` other than ok comes with an ``error`` that says why."""

    status: str = "ok"
    figures: dict[str, float] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    error: dict[str, str] | None = None


def measure(cell: Cell, pass_: str, round_: int, session: SessionConfig) -> Measurement:
    """Take one pass over one cell in this process.

    Raises:
        Unsupported: the policy or kernel cannot apply, or the policy matched nothing that ran.
        MemoryError, torch.OutOfMemoryError, RuntimeError: the device or the host had no more memory.
    """
    module = importlib.import_module(PASSES[pass_])
    with _compiler(cell, pass_, session):
        measurement: Measurement = module.take(cell, round_, session)
    return measurement


def _compiler(cell: Cell, pass_: str, session: SessionConfig) -> AbstractContextManager[object]:
    """Where a compiler may write; the time pass, which times it, finds nothing compiled there."""
    if cell.config.compile == "none":
        return nullcontext()
    return private_cache(Path(session.paths.runs), cold=pass_ == "time")

"""Seconds of operators as they were measured inside a real step, found again by what they work on."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from suite.predict.trace.step import OperatorRun


@dataclass(frozen=True)
class OperatorTable:
    """Operators of one workload, each measured where it stands in a step, with caches as they are there.

    A replay's operators are a forward's. The layout of a matrix product's factors is not in its shapes but
    follows from the side: a linear layer's forward reads its weight transposed, its backward one of either.

    Attributes:
        seconds_of: by side, operator, dtype and shapes: median of a call.
        per_work: by side and operator: seconds per FLOP, or per byte where it has none. For sizes that were
            not measured: tiles, and an optimizer over more parameters.
        forward_beyond_s: what a forward takes beyond its operators, over their number.
        backward_beyond_s: the same of a backward.
    """

    seconds_of: dict[str, float] = field(default_factory=dict)
    per_work: dict[str, float] = field(default_factory=dict)
    forward_beyond_s: float = 0.0
    backward_beyond_s: float = 0.0

    def seconds(self, run: OperatorRun) -> float | None:
        """Of one call of ``run``; None where no operator of its name was measured on its side."""
        known = self.seconds_of.get(key_of(run))
        if known is None:
            per_work = self.per_work.get(name_of(run))
            known = None if per_work is None else per_work * work_of(run)
        return known

    def to_json(self) -> str:
        """One JSON object, as :meth:`from_json` reads it."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "OperatorTable":
        """The inverse of :meth:`to_json`. Raises ValueError or TypeError on anything else."""
        return cls(**json.loads(text))


def side_of(run: OperatorRun) -> str:
    """``forward`` for it, the loss and replays; ``backward`` or ``optimizer``."""
    return "forward" if run.replay or run.phase in ("forward", "loss") else run.phase


def name_of(run: OperatorRun) -> str:
    """Side and operator."""
    return f"{side_of(run)} {run.operator}"


def key_of(run: OperatorRun) -> str:
    """Side, operator, dtype and shapes."""
    shapes = " ".join("x".join(map(str, shape)) or "1" for shape in run.shapes)
    return f"{name_of(run)} {run.dtype} {shapes}"


def work_of(run: OperatorRun) -> float:
    """FLOPs, or bytes where there are none; at least 1."""
    return float(run.flops or max(1, run.read_bytes + run.written_bytes))


def averaged(runs: Iterable[tuple[OperatorRun, float]]) -> dict[str, float]:
    """Seconds per work by side and operator, from calls and their seconds."""
    work: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for run, took in runs:
        name = name_of(run)
        work[name] = work.get(name, 0.0) + work_of(run)
        seconds[name] = seconds.get(name, 0.0) + took
    return {name: seconds[name] / work[name] for name in work}

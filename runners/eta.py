"""How much work a pass is, relative to others, and what is left of it in seconds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from suite.cell import Cell
from suite.config.schema import CellConfig, TrainerConfig
from suite.record import RecordKey

# Every step dispatches operators whatever their size, and every child builds a model and a Trainer:
# in the currency of FLOPs, so that small cells are not taken to be free.
_STEP_FLOPS = 2e8
_CHILD_FLOPS = 2e10


@dataclass(frozen=True)
class Estimated:
    """What is known of a cell before it runs. ``peak_bytes`` None: it cannot be predicted."""

    step_flops: float
    peak_bytes: int | None


def estimated(config: CellConfig) -> Estimated:
    """The prediction for a cell; without one, its cost is that of a cell of no size."""
    try:
        from suite.predict.estimate import estimate

        found = estimate(config)
    except Exception:  # noqa: BLE001 - it only tells how long things take; nothing may fail of it
        return Estimated(0.0, None)
    return Estimated(found.step_flops, found.peak_bytes)


def steps_of(pass_: str, trainer: TrainerConfig) -> float:
    """About how many optimizer steps a pass runs. Parity runs two models, one step each."""
    warmup = (trainer.warmup_min_steps + trainer.warmup_max_steps) / 2
    return {"predict": 0.0, "memory": 2.0, "flops": 1.0, "parity": 2.0, "time": warmup + trainer.steps}[
        pass_
    ]


def weight(step_flops: float, pass_: str, trainer: TrainerConfig) -> float:
    """The work of one pass in FLOPs, the cost of a step and of a child as such included."""
    return steps_of(pass_, trainer) * (step_flops + _STEP_FLOPS) + _CHILD_FLOPS


@dataclass
class Eta:
    """Time left, from the weights of what is pending and what was really taken so far."""

    trainer: TrainerConfig
    places: int = 1
    predict: Callable[[CellConfig], Estimated] = estimated
    _weights: dict[RecordKey, float] = field(default_factory=dict)
    _taken: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, cell: Cell, keys: Iterable[RecordKey]) -> None:
        """Weigh the passes of a cell that are to be run."""
        step_flops = self.predict(cell.config).step_flops
        for key in keys:
            self._weights[key] = weight(step_flops, key.pass_, self.trainer)

    def took(self, key: RecordKey, wall_s: float) -> None:
        """A pass has ended after ``wall_s`` seconds."""
        weights, seconds = self._taken.get(key.pass_, (0.0, 0.0))
        self._taken[key.pass_] = weights + self._weights.get(key, 0.0), seconds + wall_s

    def left_s(self, pending: Iterable[RecordKey]) -> float | None:
        """Seconds until ``pending`` is done; None before anything has been timed."""
        weights = sum(w for w, _ in self._taken.values())
        if not weights:
            return None
        overall = sum(s for _, s in self._taken.values()) / weights
        rates = {name: s / w for name, (w, s) in self._taken.items() if w}
        left = sum(self._weights[key] * rates.get(key.pass_, overall) for key in pending)
        return left / self.places

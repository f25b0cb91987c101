"""Times the operators of a workload where they stand: in real steps that keep everything.

Policies run the same operators as ``none``, some of them again. So one workload's operators, measured once,
say what any policy's step takes; only what checkpointing itself costs is not among them.
"""

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from suite.config.schema import CellConfig, PolicyConfig
from suite.measure.setup import build_subject, first_batch
from suite.measure.work import formula_of
from suite.predict.time.table import OperatorTable, averaged, key_of, side_of
from suite.predict.trace.step import OperatorRun
from suite.training.optimizers import build_optimizer
from suite.training.precision import PRECISION
from suite.training.step import model_loss

_MOST_BLOCKS = 6
_FEWEST_STEPS = 5
_MOST_STEPS = 40


class Steps:
    """Training steps of a cell, without Lightning: forward, loss, backward, optimizer, no gradient left."""

    def __init__(self, config: CellConfig) -> None:
        subject = build_subject(config, instrumented=False)
        self.applied = subject.apply_policy()
        self._config, self._model = config, subject.model
        self._optimizer = build_optimizer(self._model.parameters(), config.optimizer)
        self._batch = first_batch(config)

    def run(self, phase: Callable[[str], None]) -> None:
        """One step; ``phase`` is told what begins, and ``idle`` at last, once the device is done."""
        device = self._config.device
        if self.applied.host is not None:
            self.applied.host.begin_step()
        with PRECISION[self._config.precision].autocast(device):
            loss = model_loss(self._model, self._batch, phase)
        phase("backward")
        loss.backward()  # type: ignore[no-untyped-call]
        phase("optimizer")
        self._optimizer.step()
        self._optimizer.zero_grad()
        del loss
        if device != "cpu":
            torch.accelerator.synchronize()
        phase("idle")

    def timed(self) -> dict[str, float]:
        """Seconds of one step by phase."""
        marks: list[tuple[str, float]] = []
        self.run(lambda name: marks.append((name, time.perf_counter())))
        ends = [moment for _, moment in marks[1:]]
        return {name: end - begin for (name, begin), end in zip(marks, ends, strict=False)}


@dataclass
class _Calls:
    """Calls that are alike: as the trace would enter them, and their seconds."""

    run: OperatorRun
    seconds: list[float]


class OperatorTimer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Times every operator while the mode is entered; meant for the CPU, where calls return when done."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase = "forward"
        self.calls: dict[str, _Calls] = {}

    def begin_phase(self, name: str) -> None:
        """What follows is of that phase."""
        self.phase = name

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator between two looks at the clock."""
        kwargs = kwargs or {}
        start = time.perf_counter()
        output = func(*args, **kwargs)
        end = time.perf_counter()
        if not func.is_view:
            formula = formula_of(func)
            inputs, outputs = _tensors((*args, *kwargs.values())), _tensors((output,))
            first = next(iter(outputs or inputs), None)
            run = OperatorRun(
                operator=func.name(),
                module="",
                phase=self.phase,
                replay=False,
                flops=0 if formula is None else formula(*args, **kwargs, out_val=output),
                read_bytes=sum(map(_nbytes, inputs)),
                written_bytes=sum(map(_nbytes, outputs or inputs[:1])),
                dtype="float32" if first is None else str(first.dtype).removeprefix("torch."),
                shapes=tuple(tuple(t.shape) for t in inputs),
            )
            self.calls.setdefault(key_of(run), _Calls(run, [])).seconds.append(end - start)
        return output


def measure_operators(config: CellConfig, seconds: float = 4.0) -> OperatorTable:
    """Measure the operators of the workload of ``config``, whatever its policy, in about that time.

    The model's depth is cut down to a few blocks, all of which are alike. Plain steps are taken in turn
    with those in which each operator is timed: the table's operators are scaled down where together they
    take longer than a plain step, and what is left of it otherwise is spread over them.

    Raises ValueError for a device other than the CPU: elsewhere calls return before the work is done.
    """
    if config.device != "cpu":
        raise ValueError("operators are timed one by one on the CPU only")
    depth = min(config.model.n_layers, _MOST_BLOCKS)
    model = replace(config.model, n_layers=depth)
    plain = replace(config, model=model, policy=PolicyConfig("none"), compile="none", compile_backend="")
    steps = Steps(plain)
    steps.run(lambda _: None)
    phases: dict[str, list[float]] = defaultdict(list)
    calls: dict[str, _Calls] = {}
    counts: Counter[str] = Counter()
    begin, done = time.perf_counter(), 0
    while done < _FEWEST_STEPS or (done < _MOST_STEPS and time.perf_counter() - begin < seconds):
        for name, took in steps.timed().items():
            phases[name].append(took)
        timer = OperatorTimer()
        with timer:
            steps.run(timer.begin_phase)
        for key, found in timer.calls.items():
            calls.setdefault(key, _Calls(found.run, [])).seconds.extend(found.seconds)
            counts[key] = len(found.seconds)
        done += 1
    return _table(calls, counts, {name: statistics.median(took) for name, took in phases.items()})


def _table(calls: dict[str, _Calls], counts: Counter[str], phases: dict[str, float]) -> OperatorTable:
    plain = {"forward": phases["forward"] + phases["loss"], "backward": phases["backward"]}
    medians = {key: statistics.median(found.seconds) for key, found in calls.items()}
    beyond = {}
    for side, whole in plain.items():
        keys = [key for key, found in calls.items() if side_of(found.run) == side]
        inside = sum(medians[key] * counts[key] for key in keys)
        for key in keys:
            medians[key] *= min(1.0, whole / inside)
        beyond[side] = max(0.0, whole - inside) / sum(counts[key] for key in keys)
    return OperatorTable(
        seconds_of=medians,
        per_work=averaged((found.run, medians[key]) for key, found in calls.items()),
        forward_beyond_s=beyond["forward"],
        backward_beyond_s=beyond["backward"],
    )


def _tensors(values: Any) -> list[Tensor]:
    """As the trace's recorder finds them: those among the values and in sequences, each once."""
    found: dict[int, Tensor] = {}
    for value in values:
        if isinstance(value, Tensor):
            found[id(value)] = value
        elif isinstance(value, list | tuple):
            found.update((id(t), t) for t in value if isinstance(t, Tensor))
    return list(found.values())


def _nbytes(tensor: Tensor) -> int:
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())

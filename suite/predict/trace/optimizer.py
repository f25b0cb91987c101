"""An optimizer's first and second step over fake parameters: what they allocate, apart from any model.

The step sees parameters and gradients and nothing else, so what it does is the same under every policy,
batch and length: one answer for a whole sweep.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from suite.config.schema import OptimizerConfig
from suite.measure.instrument import ModulePaths
from suite.measure.tracker import Allocation
from suite.predict.trace.recorder import Recorder
from suite.predict.trace.step import OperatorRun
from suite.training.optimizers import build_optimizer

# Shape of each parameter, and its dtype.
Parameters = tuple[tuple[tuple[int, ...], torch.dtype], ...]


@dataclass(frozen=True)
class OptimizerTrace:
    """Both steps.

    Attributes:
        allocations: of storages that are born in either step.
        first: index of an allocation and 1 for its birth, -1 for its end, in the order of the first step.
        steady: the same of the second step.
        states: index of the allocation, of the parameter and the name, for each state that stays.
        operators: of the second step.
    """

    allocations: tuple[Allocation, ...]
    first: tuple[tuple[int, int], ...]
    steady: tuple[tuple[int, int], ...]
    states: tuple[tuple[int, int, str], ...]
    operators: Counter[OperatorRun]


@lru_cache(maxsize=64)
def trace_optimizer(parameters: Parameters, config: OptimizerConfig) -> OptimizerTrace:
    """Trace two steps of ``config``'s optimizer over ``parameters``."""
    with FakeTensorMode():
        tensors = [torch.nn.Parameter(torch.empty(shape, dtype=dtype)) for shape, dtype in parameters]
        gradients = [torch.empty_like(tensor) for tensor in tensors]
        for tensor, gradient in zip(tensors, gradients, strict=True):
            tensor.grad = gradient
        recorder = Recorder(ModulePaths(torch.nn.Module()))
        optimizer = build_optimizer(tensors, config)
        recorder.begin_phase("optimizer")
        with recorder:
            for given in (*tensors, *gradients):  # an operator in place returns what is not born there
                recorder.mark(given, "given", "")
            begin = len(recorder.log.events)
            optimizer.step()
            first = len(recorder.log.events)
            recorder.enter("edge", -1)
            for index, tensor in enumerate(tensors):
                for name, state in optimizer.state[tensor].items():
                    if isinstance(state, torch.Tensor):
                        recorder.mark(state, "optimizer_state", f"{index}.{name}")
            optimizer.step()
            recorder.finish()
        log = recorder.log
        events = [(event.index, event.sign) for event in log.events]
        states = []
        for place, allocation in enumerate(log.allocations):
            if allocation.kind == "optimizer_state":
                owner, _, name = allocation.name.partition(".")
                states.append((place, int(owner), name))
        return OptimizerTrace(
            tuple(log.allocations),
            tuple(events[begin:first]),
            tuple(events[first:]),
            tuple(states),
            recorder.stretches[-1].operators,
        )

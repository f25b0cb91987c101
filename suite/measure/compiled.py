"""What every pass over a compiled cell does first: compile, and see that it stays so.

A dispatch mode or a profiler that is there when a graph is compiled changes what is compiled, or that
anything is. So the first steps run with nothing round them, and a pass looks afterwards.
"""

import time
from dataclasses import dataclass

import torch
import torch._dynamo
from torch._dynamo import exc

from suite.errors import Unsupported
from suite.measure.setup import STEP_SEED, Subject, first_batch
from suite.policies import Applied, Entry
from suite.training.precision import PRECISION
from suite.training.step import model_loss


@dataclass(frozen=True)
class WarmUp:
    """The outcome of :func:`warm_up`.

    Attributes:
        compile_time_s: by how much the first forward and backward took longer than the second.
        graphs_count: graphs that were compiled.
        entries: the rules with their hits: of regions those of one forward; an operator's outputs are hit
            while the graph is traced, once for all the blocks that share it.
    """

    compile_time_s: float
    graphs_count: int
    entries: tuple[Entry, ...]


def warm_up(subject: Subject, applied: Applied) -> WarmUp:
    """Compile the subject's model by running it; weights, buffers and random state are as before.

    Raises:
        Unsupported: the model does not trace into one graph under this policy.
        MatchedNothing: a rule of the policy is in no graph that ran.
    """
    compilation = subject.compilation
    assert compilation is not None
    buffers = {name: buffer.clone() for name, buffer in subject.model.named_buffers()}
    try:
        first = _step_time(subject)
    except exc.Unsupported as problem:
        family, line = subject.config.policy.family, str(problem).strip().partition("\n")[0]
        raise Unsupported(
            f"compile={subject.config.compile}: torch does not trace policy={family} into one graph: {line}"
        ) from problem
    applied.verify()
    graphs, entries = compilation.graphs_count, applied.counted()
    second = _step_time(subject)
    for name, buffer in subject.model.named_buffers():
        buffer.copy_(buffers[name])
    torch.manual_seed(subject.config.seed + STEP_SEED)
    return WarmUp(max(first - second, 0.0), graphs, entries)


def compiled_anew(subject: Subject, warm: WarmUp) -> list[str]:
    """A warning if a graph was compiled after the warm-up; nothing where nothing was."""
    assert subject.compilation is not None
    more = subject.compilation.graphs_count - warm.graphs_count
    return [f"{more} graphs were compiled again after the warm-up"] if more else []


def _step_time(subject: Subject) -> float:
    config = subject.config
    batch = first_batch(config)
    start = time.perf_counter()
    with PRECISION[config.precision].autocast(config.device):
        loss = model_loss(subject.model, batch, lambda _: None)
    loss.backward()  # type: ignore[no-untyped-call]
    if config.device != "cpu":
        torch.accelerator.synchronize()
    taken = time.perf_counter() - start
    subject.model.zero_grad(set_to_none=True)
    return taken

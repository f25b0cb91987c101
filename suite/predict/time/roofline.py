"""The time of a traced step: each operator's own, what the host adds, and the slower of both.

On a CPU the host is the device, and everything adds. An accelerator runs behind the host: within each part
of a step the slower of the two sets the pace, and what the host takes beyond the device is the class
``host``.

What is compiled is taken to run each chain of elementwise operators of one module as one kernel, which
reads the largest of the chain's inputs and writes the largest of its outputs once, with one launch; chains
that the compiler draws together across modules, or splits at a reduction, are not seen. Compiled code
dispatches nothing operator by operator, and selective checkpointing costs it nothing at run time.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from suite.config.schema import CellConfig, PolicyConfig
from suite.policies import make_policy
from suite.policies.assignment import Assignment
from suite.predict.time.classes import CLASSES, COPY, ELEMENTWISE, HOST, class_of
from suite.predict.time.kernels import kernel_s, traffic_s
from suite.predict.time.rates import Rates
from suite.predict.time.table import OperatorTable
from suite.predict.trace.step import OperatorRun, StepTrace

PHASES = ("forward", "loss", "backward", "optimizer")
# Their names say what runs inside torch's selective checkpointing.
_SELECTIVE = ("ops", "named")


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds of one steady training step.

    Attributes:
        step_time_s: of the whole step: the sum of ``phases_s``, and that of ``classes_s``.
        phases_s: by forward, loss, backward and optimizer.
        replay_s: the part of backward in which forwards run again, with what checkpointing adds there.
        classes_s: by matmul, attention, elementwise (and reductions), copy and host.
        measured_share: of the time, from operators that were measured, not from rates.
    """

    step_time_s: float
    phases_s: dict[str, float] = field(default_factory=dict)
    replay_s: float = 0.0
    classes_s: dict[str, float] = field(default_factory=dict)
    measured_share: float = 0.0


@dataclass
class _Part:
    """One phase, or the replay inside of backward: seconds on the device by class, and of the host."""

    device: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    host: float = 0.0
    link: float = 0.0

    def seconds(self, *, asynchronous: bool) -> dict[str, float]:
        """By class, so that they add up to the part's time."""
        found: dict[str, float] = {name: self.device[name] for name in CLASSES}
        if not asynchronous:
            found[HOST] += self.host
            return found
        busy = sum(found.values())
        found[HOST] += max(0.0, self.host - busy)
        found[COPY] += max(0.0, self.link - max(busy, self.host))
        return found


def predict_time(
    trace: StepTrace, config: CellConfig, rates: Rates, operators: OperatorTable | None = None
) -> TimeEstimate:
    """How long the steady step of ``trace`` takes on the device of ``rates``.

    ``operators``: seconds of operators as measured on that device; what it does not have follows from the
    rates. It is no use for what is compiled.

    ``trace`` is of the eager step, also where ``config`` compiles it: a compiled cell has no trace of its
    own.
    """
    compiled = config.compile != "none"
    table = None if compiled else operators
    parts = {(phase, replay): _Part() for phase in PHASES for replay in (False, True)}
    measured = 0.0
    for run, calls in _kernels(trace.operators, fused=compiled):
        part = parts[run.phase, run.replay]
        seconds = None if table is None else table.seconds(run)
        if seconds is None:
            if run.operator == _FUSED:
                nbytes = run.read_bytes + run.written_bytes
                seconds = traffic_s(nbytes, rates) + rates.kernel_overhead_s
            else:
                seconds = kernel_s(run, rates, causal=config.data.kind != "packed")
            part.host += calls * _dispatch_s(run, rates)
        else:
            part.host += calls * _beyond_s(run, table)
            measured += calls * seconds
        part.device[class_of(run.operator, run.flops)] += calls * seconds
    _add_checkpointing(parts, trace, config, rates)
    if rates.host_link_bytes_per_s:
        link = rates.host_link_bytes_per_s * rates.host_link_efficiency
        parts["forward", False].link += trace.host_figures.get("host_moved_bytes", 0) / link
        parts["backward", False].link += trace.host_figures.get("host_returned_bytes", 0) / link
    return _summed(parts, rates, measured)


def _summed(parts: dict[tuple[str, bool], _Part], rates: Rates, measured: float) -> TimeEstimate:
    by_part = {key: part.seconds(asynchronous=rates.asynchronous) for key, part in parts.items()}
    phases = {
        phase: sum(by_part[phase, False].values()) + sum(by_part[phase, True].values()) for phase in PHASES
    }
    classes = {name: sum(found[name] for found in by_part.values()) for name in CLASSES}
    step = sum(phases.values())
    replay = sum(sum(by_part[phase, True].values()) for phase in PHASES)
    return TimeEstimate(step, phases, replay, classes, measured / step if step else 0.0)


def _dispatch_s(run: OperatorRun, rates: Rates) -> float:
    """What the host takes for one call: Python runs forwards and replays, and autograd the rest."""
    in_backward = run.phase == "backward" and not run.replay
    return rates.backward_dispatch_s if in_backward else rates.forward_dispatch_s


def _beyond_s(run: OperatorRun, table: OperatorTable | None) -> float:
    assert table is not None
    in_backward = run.phase == "backward" and not run.replay
    return table.backward_beyond_s if in_backward else table.forward_beyond_s


_FUSED = "fused::elementwise"


def _kernels(operators: Counter[OperatorRun], *, fused: bool) -> Iterator[tuple[OperatorRun, int]]:
    """What runs, and how often; with chains of elementwise operators as one where they are fused."""
    if not fused:
        yield from operators.items()
        return
    chains: dict[tuple[str, str, bool], list[tuple[OperatorRun, int]]] = {}
    for run, calls in operators.items():
        # The optimizer is not compiled with the model.
        if run.phase != "optimizer" and class_of(run.operator, run.flops) in (ELEMENTWISE, COPY):
            chains.setdefault((run.module, run.phase, run.replay), []).append((run, calls))
        elif run.phase == "optimizer" or class_of(run.operator, run.flops) != HOST:
            yield run, calls
    for (module, phase, replay), chain in chains.items():
        # The commonest count is how often the module runs: an operator may come twice in it.
        often = Counter(calls for _, calls in chain).most_common(1)[0][0]
        runs = [run for run, _ in chain]
        reads, writes = max(r.read_bytes for r in runs), max(r.written_bytes for r in runs)
        yield OperatorRun(_FUSED, module, phase, replay, 0, reads, writes, runs[0].dtype, ()), often


def _add_checkpointing(
    parts: dict[tuple[str, bool], _Part], trace: StepTrace, config: CellConfig, rates: Rates
) -> None:
    """What the host does for regions, and for each operator in selective ones."""
    if config.compile != "none":
        return
    # A region is entered in the forward; in backward its hooks start a replay, and stop it.
    half = len(trace.regions) * rates.region_overhead_s / 2
    parts["forward", False].host += half
    parts["backward", True].host += half
    share = _selective_share(config.policy, config.model.n_layers)
    inside = sum(
        calls
        for run, calls in trace.operators.items()
        if run.phase == "forward" and run.module.startswith("blocks.")
    )
    # What a replay finds in its store goes through the mode all the same: the count is the forward's.
    once = share * inside * rates.selective_dispatch_s
    parts["forward", False].host += once
    parts["backward", True].host += once


def _selective_share(policy: PolicyConfig, depth: int) -> float:
    """The share of the blocks that run under selective checkpointing."""
    family = make_policy(policy)
    if isinstance(family, Assignment):
        parts: Sequence[tuple[PolicyConfig, Sequence[int]]] = family.parts(depth)
        return sum(_selective_share(p, len(blocks)) * len(blocks) for p, blocks in parts) / depth
    offloads = policy.family == "offload" and policy.options.get("what") == "selective"
    return 1.0 if policy.family in _SELECTIVE or offloads else 0.0

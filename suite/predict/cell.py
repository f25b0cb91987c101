"""A cell's memory and work from its trace: the figures of the memory and the FLOPs pass, none measured."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from suite.config.schema import CellConfig, HardwareConfig, ParallelConfig
from suite.errors import Unsupported
from suite.measure import Measurement
from suite.measure.account import account_step
from suite.measure.memory_figures import entry_rows, located_figures, memory_detail, memory_figures
from suite.measure.places import entry_work, recomputed_blocks, work_by_place
from suite.measure.tracker import MemoryLog
from suite.predict.accelerator.allocator import replay
from suite.predict.accelerator.assumptions import MemoryAssumptions, memory_assumptions, told
from suite.predict.accelerator.kernels import AcceleratorKernels, kernel_workspace_bytes
from suite.predict.flops import forward_flops, model_flops
from suite.predict.layout.rank import of_rank
from suite.predict.layout.spread import layout_assumptions, spread_log
from suite.predict.trace.compose import trace_step
from suite.predict.trace.step import StepTrace, Target

_STEADY_STEP = 1
_BEFORE_BACKWARD = ("forward", "loss")
_FORMULAS = ("model_flops", "model_forward_flops", "recomputed_flops", "tokens_count")


def predict_cell(
    config: CellConfig,
    *,
    whole: bool = False,
    hardware: HardwareConfig | None = None,
    assumptions: Mapping[str, Any] | None = None,
) -> Measurement:
    """What both passes would say of the cell; no tensor is allocated.

    On the CPU the figures are those of a measurement, to the byte. On an accelerator they are those of its
    allocator, as far as the assumptions hold. ``detail["sources"]`` says of each figure whether the trace,
    a formula, a model of the allocator or a layout has it; ``detail["assumptions"]`` what was taken for
    granted.

    Args:
        config: of the cell; one rank's share is predicted where it is spread over devices.
        whole: every block is traced instead of those that are different.
        hardware: the accelerator; unused on the CPU.
        assumptions: by name, instead of those that follow from the cell and the hardware.

    Raises:
        Unsupported: the policy cannot apply, or the cell is compiled, which a trace by operators is not.
        MatchedNothing: a rule of the policy is in no forward.
        UsageError: an assumption has no such value.
    """
    return predict_traced(config, whole=whole, hardware=hardware, assumptions=assumptions)[0]


def predict_traced(
    config: CellConfig,
    *,
    whole: bool = False,
    hardware: HardwareConfig | None = None,
    assumptions: Mapping[str, Any] | None = None,
) -> tuple[Measurement, StepTrace]:
    """As :func:`predict_cell`, with the trace that it comes from."""
    compiled = config.compile != "none"
    if compiled and config.device == "cpu":
        raise Unsupported(f"compile={config.compile}: a trace runs operator by operator")
    given = dict(assumptions or {})
    local = replace(of_rank(config), compile="none", compile_backend="")
    card = None
    if config.device != "cpu":
        card = memory_assumptions(config, hardware or HardwareConfig(), given)
    trace = trace_step(local, whole=whole, target=_target(config, card))
    layout = layout_assumptions(given)
    log = spread_log(config, trace.log, layout)
    memory, flops = _memory(trace, log), _flops(local, trace)
    figures = memory.figures | flops.figures
    sources = {name: "formula" if name in _FORMULAS else "trace" for name in figures}
    known: dict[str, Any] = {}
    detail = memory.detail | flops.detail | {"entries": _joined(memory, flops)}
    if config.parallel != ParallelConfig():
        sources = {
            name: "trace and layout" if name.endswith("_bytes") else s for name, s in sources.items()
        }
        known |= layout.told(given)
    if card is not None:
        ours, phases = _allocator(log, card)
        figures |= ours | {"tracked_peak_bytes": figures["peak_bytes"]}
        sources |= dict.fromkeys(ours, "model of the allocator") | {
            "tracked_peak_bytes": sources["peak_bytes"]
        }
        detail["phase_peaks"] = phases
        known |= told(card, given)
    detail |= {"sources": sources, "traced_blocks": trace.traced_blocks}
    if compiled:
        known["compiled_memory"] = {"value": "as uncompiled", "source": "fused operators may keep less"}
    if known:
        detail["assumptions"] = known
    return Measurement(figures=figures, detail=detail), trace


def _target(config: CellConfig, card: MemoryAssumptions | None) -> Target | None:
    if card is None:
        return None
    kernels = partial(
        AcceleratorKernels,
        card.attention_kernel,
        fused_norms=card.fused_norms,
        precision=config.precision,
    )
    return Target(kernels, kernel_workspace_bytes)


def _allocator(log: MemoryLog, card: MemoryAssumptions) -> tuple[dict[str, float], dict[str, int]]:
    """By the names of a record of an accelerator; and the peaks by phase."""
    found = replay(log, rounding_bytes=card.rounding_bytes, resident_bytes=card.workspace_bytes)
    figures: dict[str, float] = {f"peak_{p}_bytes": n for p, n in found.phase_peaks.items() if p != "idle"}
    figures |= {
        "peak_bytes": found.peak_allocated_bytes,
        "peak_allocated_bytes": found.peak_allocated_bytes,
        "peak_reserved_bytes": found.peak_reserved_bytes,
        "least_reserved_bytes": found.least_reserved_bytes,
        "device_used_bytes": found.peak_reserved_bytes + card.context_bytes,
        "least_device_used_bytes": found.least_reserved_bytes + card.context_bytes,
    }
    return figures, {p: n for p, n in found.phase_peaks.items() if p != "idle"}


def _memory(trace: StepTrace, log: MemoryLog) -> Measurement:
    steady = account_step(log, _STEADY_STEP)
    figures = memory_figures(steady) | located_figures(steady, trace.regions) | trace.host_figures
    figures["first_step_peak_bytes"] = account_step(log, 0).peak_bytes
    figures["regions_count"] = len(trace.regions)
    detail = memory_detail(steady, trace.regions) | {"entries": entry_rows(trace.entries, steady)}
    return Measurement(figures=figures, detail=detail | {"meter": "trace"})


def _flops(config: CellConfig, trace: StepTrace) -> Measurement:
    executed = sum(run.flops * count for run, count in trace.operators.items())
    forward = sum(r.flops * n for r, n in trace.operators.items() if r.phase in _BEFORE_BACKWARD)
    needed = model_flops(config)
    figures: dict[str, float] = {
        "model_flops": needed,
        "executed_flops": executed,
        "recomputed_flops": executed - needed,
        "model_forward_flops": forward_flops(config),
        "executed_forward_flops": forward,
        "tokens_count": config.batch_size * config.seq_len,
        "blocks_recomputed_count": recomputed_blocks(trace.work),
    }
    work = work_by_place(trace.work)
    return Measurement(
        figures=figures, detail={"work": work, "entries": entry_work(trace.entries, trace.work)}
    )


def _joined(memory: Measurement, flops: Measurement) -> list[dict[str, object]]:
    """Each rule's row of either account in one."""
    pairs = zip(memory.detail["entries"], flops.detail["entries"], strict=True)
    return [kept | worked for kept, worked in pairs]

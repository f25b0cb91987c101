"""A cell's memory and work from its trace: the figures of the memory and the FLOPs pass, none measured."""

from suite.config.schema import CellConfig
from suite.errors import Unsupported
from suite.measure import Measurement
from suite.measure.account import account_step
from suite.measure.memory_figures import entry_rows, located_figures, memory_detail, memory_figures
from suite.measure.places import entry_work, recomputed_blocks, work_by_place
from suite.predict.flops import forward_flops, model_flops
from suite.predict.trace.compose import trace_step
from suite.predict.trace.step import StepTrace

_STEADY_STEP = 1
_BEFORE_BACKWARD = ("forward", "loss")


def predict_cell(config: CellConfig, *, whole: bool = False) -> Measurement:
    """What both passes would say of the cell on this CPU; no tensor is allocated.

    ``detail["sources"]`` says of each figure whether the trace or a formula has it. With ``whole`` every
    block is traced instead of those that are different.

    Raises:
        Unsupported: the policy cannot apply, or the cell is compiled, which a trace by operators is not.
        MatchedNothing: a rule of the policy is in no forward.
    """
    if config.compile != "none":
        raise Unsupported(f"compile={config.compile}: a trace runs operator by operator")
    trace = trace_step(config, whole=whole)
    memory, flops = _memory(trace), _flops(config, trace)
    formulas = ("model_flops", "model_forward_flops", "recomputed_flops", "tokens_count")
    figures = memory.figures | flops.figures
    sources = {name: "formula" if name in formulas else "trace" for name in figures}
    detail = memory.detail | flops.detail | {"entries": _joined(memory, flops), "sources": sources}
    return Measurement(figures=figures, detail=detail | {"traced_blocks": trace.traced_blocks})


def _memory(trace: StepTrace) -> Measurement:
    steady = account_step(trace.log, _STEADY_STEP)
    figures = memory_figures(steady) | located_figures(steady, trace.regions) | trace.host_figures
    figures["first_step_peak_bytes"] = account_step(trace.log, 0).peak_bytes
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

"""The log of a rank's share of a step: what it holds less of, and what it holds beside its own trace."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from suite.config.schema import CellConfig, ParallelConfig
from suite.errors import UsageError
from suite.measure.account import account_step
from suite.measure.tracker import Allocation, Event, MemoryLog
from suite.predict.layout.rank import in_flight

# Parameters in bf16, gradients in fp32, and a copy of the parameters and both moments in fp32.
_MEGATRON_GRADIENT_BYTES = 4
_MEGATRON_STATE_BYTES = 12
_LOSS_KERNELS = ("torch", "in_place", "fused")
_LOSS_IN_PLACE = (
    "aten::_log_softmax",
    "aten::_log_softmax_backward_data",
    "aten::nll_loss_backward",
)


@dataclass(frozen=True)
class Assumed:
    """What is taken for granted of the libraries that spread a step.

    Attributes:
        gathered_blocks: whole blocks that a rank of ZeRO-3 holds at once: the one at work and the next.
        ddp_buckets: a copy of all gradients in DDP's communication buckets.
        loss_kernel: ``torch``'s cross entropy; ``in_place``, which turns the float32 logits into
            probabilities and those into their gradient where they are; ``fused``, which does so with the
            16-bit logits.
            Empty: in place under the megatron recipe, else torch's.
    """

    gathered_blocks: int = 2
    ddp_buckets: bool = False
    loss_kernel: str = ""

    def told(self, overrides: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Name to ``value`` and ``source``, as a record and an answer show them."""
        return {
            name: {"value": value, "source": "given" if name in overrides else _SOURCES[name]}
            for name, value in asdict(self).items()
        }


_SOURCES = {
    "gathered_blocks": "FSDP prefetches one block while another is at work",
    "ddp_buckets": "gradients as views of DDP's buckets (gradient_as_bucket_view)",
    "loss_kernel": "Megatron-LM core/tensor_parallel/cross_entropy.py under its recipe, else torch's",
}


def layout_assumptions(overrides: Mapping[str, Any]) -> Assumed:
    """``overrides`` set by name. Raises UsageError naming ``assumptions.NAME``."""
    blocks = overrides.get("gathered_blocks", Assumed.gathered_blocks)
    buckets = overrides.get("ddp_buckets", Assumed.ddp_buckets)
    if isinstance(blocks, bool) or not isinstance(blocks, int) or blocks < 1:
        raise UsageError("assumptions.gathered_blocks", blocks, "expected a whole number >= 1")
    if not isinstance(buckets, bool):
        raise UsageError("assumptions.ddp_buckets", buckets, "expected true or false")
    loss = overrides.get("loss_kernel", "")
    if loss not in ("", *_LOSS_KERNELS):
        raise UsageError("assumptions.loss_kernel", loss, f"expected one of {', '.join(_LOSS_KERNELS)}")
    return Assumed(blocks, buckets, loss)


def spread_log(config: CellConfig, log: MemoryLog, assumed: Assumed) -> MemoryLog:
    """The log of one rank of ``config.parallel``, from the trace of its own part.

    Args:
        config: of the whole cell.
        log: of :func:`suite.predict.layout.rank.of_rank`.
        assumed: see there.
    """
    spread = config.parallel
    if spread == ParallelConfig() and not assumed.loss_kernel:
        return log
    sizes = _Sizes(config, assumed)
    scaled = _resized(log, sizes)
    parameters = [a for a in log.allocations if a.kind == "parameter" and sizes.here(a)]
    static, working = _beside(spread, parameters, assumed)
    saved = _saved_bytes(scaled)
    flying = round((in_flight(spread) - 1) * saved)
    if flying:
        static.append(_held("micro-batches in flight", flying, "activation"))
    return _with(scaled, static, working)


class _Sizes:
    """Bytes on this rank of an allocation in the trace of its part."""

    def __init__(self, config: CellConfig, assumed: Assumed) -> None:
        spread = config.parallel
        self._spread, self._width = spread, config.model.d_model
        self._tied = config.model.tied_head
        self._first, self._last = spread.stage == 0, spread.stage == spread.pp - 1
        self._length = config.seq_len // spread.cp
        self._shared = spread.dp * spread.cp
        self._vocabulary = -(-config.model.vocab_size // spread.tp)
        self._loss = assumed.loss_kernel or ("in_place" if spread.recipe == "megatron" else "torch")

    def __call__(self, allocation: Allocation) -> int:
        if not self.here(allocation):
            return 0
        spread, nbytes = self._spread, allocation.nbytes
        if allocation.kind == "parameter":
            return nbytes // self._shared if spread.zero == 3 else nbytes
        if allocation.kind == "gradient":
            # Held from one micro-batch to the next, and counted as such.
            return 0 if _held_gradients(spread) else nbytes
        if allocation.kind == "optimizer_state":
            if spread.recipe == "megatron":
                return 0
            return nbytes // self._shared if spread.zero >= 1 else nbytes
        if self._in_place(allocation):
            return 0
        if allocation.phase == "optimizer" and spread.zero >= 1:
            return nbytes // self._shared
        return nbytes // spread.tp if spread.sp and self._along_sequence(allocation) else nbytes

    def here(self, allocation: Allocation) -> bool:
        """Whether the stage has it: the embedding is the first one's, head and loss the last one's."""
        name = allocation.name or allocation.module
        if name.startswith("embed"):
            return self._first or (self._tied and self._last and allocation.kind != "activation")
        head = name.startswith(("head", "norm")) or (not name and allocation.kind in ("activation",))
        if head or allocation.phase == "loss":
            return self._last or not (head or allocation.kind == "activation")
        return True

    def _in_place(self, allocation: Allocation) -> bool:
        """Whether the kernel of the loss, or Megatron-LM's fused Adam, has no tensor of its own for it."""
        if allocation.phase == "optimizer":
            return self._spread.recipe == "megatron"
        if self._loss == "torch":
            return False
        logits = self._loss == "fused" and allocation.shape[-1:] == (self._vocabulary,)
        return allocation.operator in _LOSS_IN_PLACE or (logits and allocation.operator == "aten::_to_copy")

    def _along_sequence(self, allocation: Allocation) -> bool:
        """A residual, a norm's input or output: whole in width, and so spread along the sequence."""
        shape = allocation.shape
        if len(shape) < 2 or shape[-1] not in (self._width, 1):
            return False
        return self._length in shape or shape[0] % self._length == 0


def _held_gradients(spread: ParallelConfig) -> bool:
    return spread.micro_batches > 1 or spread.recipe == "megatron" or spread.zero >= 2


def _beside(
    spread: ParallelConfig, parameters: list[Allocation], assumed: Assumed
) -> tuple[list[Allocation], list[Allocation]]:
    """What is held all the time, and what is held while the model works."""
    shared = spread.dp * spread.cp
    megatron = spread.recipe == "megatron"
    elements = sum(_elements(a) for a in parameters)
    nbytes = sum(a.nbytes for a in parameters)
    static: list[Allocation] = []
    working: list[Allocation] = []
    if _held_gradients(spread):
        whole = elements * _MEGATRON_GRADIENT_BYTES if megatron else nbytes
        parts = shared if spread.zero >= 2 else 1
        static.append(_held("gradients", whole // parts, "gradient_buffer"))
    elif assumed.ddp_buckets and spread.dp > 1:
        static.append(_held("buckets of gradients", nbytes, "gradient_buffer"))
    if megatron:
        parts = shared if spread.zero >= 1 else 1
        states = elements * _MEGATRON_STATE_BYTES // parts
        static.append(_held("fp32 parameters and moments", states, "optimizer_state"))
    if spread.zero == 3:
        outside = sum(a.nbytes for a in parameters if not a.name.startswith("blocks."))
        block = sum(a.nbytes for a in parameters if a.name.startswith("blocks.0."))
        gathered = outside + assumed.gathered_blocks * block
        working.append(_held("gathered parameters", gathered, "parameter"))
        working.append(_held("gradients before they are scattered", block, "gradient"))
    return static, working


def _elements(allocation: Allocation) -> int:
    return allocation.nbytes // (2 if allocation.dtype in ("bfloat16", "float16") else 4)


def _held(name: str, nbytes: int, kind: str) -> Allocation:
    return Allocation(nbytes, "", "", "idle", (nbytes,), "uint8", kind, name)


def _resized(log: MemoryLog, size: Callable[[Allocation], int]) -> MemoryLog:
    allocations = [replace(a, nbytes=size(a)) for a in log.allocations]
    return MemoryLog(allocations, log.events, log.phase_starts, log.step_starts)


def _saved_bytes(log: MemoryLog) -> int:
    return account_step(log, len(log.step_starts) - 1).saved_bytes


def _with(log: MemoryLog, static: list[Allocation], working: list[Allocation]) -> MemoryLog:
    """``static`` from the beginning; ``working`` from the forward of each step to its optimizer."""
    allocations = [*log.allocations, *static]
    first = len(log.allocations)
    events = [Event(first + i, 1, "idle") for i in range(len(static))]
    starts: dict[int, list[str]] = {}
    for at, phase in log.phase_starts:
        starts.setdefault(at, []).append(phase)
    steps = set(log.step_starts)
    new_steps: list[int] = []
    new_phases: list[tuple[int, str]] = []
    open_: list[int] = []
    for at in range(len(log.events) + 1):
        if at in steps:
            new_steps.append(len(events))
        for phase in starts.get(at, ()):
            if phase == "optimizer":
                events += [Event(index, -1, "backward") for index in open_]
                open_ = []
            new_phases.append((len(events), phase))
            if phase == "forward":
                open_ = list(range(len(allocations), len(allocations) + len(working)))
                allocations += working
                events += [Event(index, 1, "forward") for index in open_]
        if at < len(log.events):
            events.append(log.events[at])
    return MemoryLog(allocations, events, new_phases, new_steps)

"""What is taken for granted of an accelerator's memory: each by name, with its source."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suite.config.schema import CellConfig, HardwareConfig
from suite.errors import UsageError
from suite.predict.accelerator.kernels import attention_kernel
from suite.units import parse_bytes

_MIB = 1 << 20
# The kernels of sdpa that can be named.
_KERNELS = ("flash", "efficient", "math", "eager")


@dataclass(frozen=True)
class MemoryAssumptions:
    """Beyond the tensors of the trace.

    Attributes:
        rounding_bytes: an allocation is a multiple of.
        workspace_bytes: held by the library of matrix products, through torch's allocator.
        context_bytes: held by driver and kernels, outside of it.
        attention_kernel: that ``attention=sdpa`` runs.
        fused_norms: RMSNorm is one operator.
    """

    rounding_bytes: int
    workspace_bytes: int
    context_bytes: int
    attention_kernel: str
    fused_norms: bool


SOURCES = {
    "rounding_bytes": "torch 2.13 CUDACachingAllocator: kMinBlockSize",
    "workspace_bytes": "torch 2.13 CUDABlas: 32 MiB from compute capability 9.0, 8.125 MiB before",
    "context_bytes": "usual size of a CUDA context with torch's kernels loaded; read it off nvidia-smi",
    "attention_kernel": "torch 2.13 sdp_utils: 16 bits and no mask run flash, else efficient, else math",
    "fused_norms": "torch 2.13 has the kernel for CUDA and ROCm",
}


def memory_assumptions(
    config: CellConfig, hardware: HardwareConfig, overrides: Mapping[str, Any]
) -> MemoryAssumptions:
    """For the cell on the card, ``overrides`` set by name.

    Raises UsageError naming ``assumptions.NAME`` where its value is none of its kind.
    """
    hopper = hardware.capability and float(hardware.capability) >= 9.0
    found = MemoryAssumptions(
        rounding_bytes=512,
        workspace_bytes=32 * _MIB if hopper else 8 * _MIB + 128 * 1024,
        context_bytes=500 * _MIB,
        attention_kernel=attention_kernel(config),
        fused_norms=True,
    )
    own = {f.name for f in dataclasses.fields(MemoryAssumptions)}
    given = {name: _value(name, value) for name, value in overrides.items() if name in own}
    return dataclasses.replace(found, **given)


def _value(name: str, value: Any) -> Any:
    key = f"assumptions.{name}"
    if name.endswith("_bytes"):
        return parse_bytes(value, key)
    if name == "fused_norms" and not isinstance(value, bool):
        raise UsageError(key, value, "expected true or false")
    if name == "attention_kernel" and value not in _KERNELS:
        raise UsageError(key, value, f"expected one of {', '.join(_KERNELS)}")
    return value


def told(assumptions: MemoryAssumptions, overrides: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Name to ``value`` and ``source``, as a record and an answer show them."""
    return {
        name: {"value": value, "source": "given" if name in overrides else SOURCES[name]}
        for name, value in dataclasses.asdict(assumptions).items()
    }

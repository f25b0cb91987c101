"""The few rates of a device that a step's time follows from: stated for accelerators, measured on a CPU."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from suite.config.schema import HardwareConfig
from suite.errors import UsageError


@dataclass(frozen=True)
class Rates:
    """What a device does per second, and what the host takes to ask it.

    Attributes:
        device: what torch calls it, cpu or cuda.
        threads: of the CPU, that the rates are for; 0 where it has no meaning.
        asynchronous: the host runs ahead, so that the slower of host and device sets the pace.
        matmul_fp32_flops_per_s: dense peak of fp32 matrix products.
        matmul_bf16_flops_per_s: the same in bf16, and in fp16.
        matmul_efficiency: the share of the peak that endlessly large products reach.
        matmul_half_size: cube root of m k n at which a product reaches half of that: tiles and waves that
            are not full. 0: at every size.
        attention_forward_efficiency: share of the peak that fused attention reaches, of FLOPs that it runs.
        attention_backward_efficiency: the same of its backward.
        causal_share: of the FLOPs counted for fused attention, those that a causal kernel runs.
        bandwidth_bytes_per_s: peak of the device's memory.
        bandwidth_efficiency: the share that elementwise operators and reductions reach.
        cache_bytes: operators that touch no more than this find it in a cache; 0: not modelled.
        cache_bandwidth_bytes_per_s: what they reach there.
        exponential_bytes_per_s: most that operators with an exponential reach, softmax and silu; 0: no
            less than the others.
        optimizer_bytes_per_s: bytes that an optimizer reads per second; 0: as the bandwidth.
        kernel_overhead_s: of one operator on the device, however small.
        forward_dispatch_s: of one operator on the host, in forward: modules, autograd and dispatch.
        backward_dispatch_s: the same in backward, whose operators no Python runs.
        region_overhead_s: on the host, of one checkpointed region in one step.
        selective_dispatch_s: on the host, of one operator inside selective checkpointing's dispatch modes,
            on top; once in the forward and once in the replay.
        host_link_bytes_per_s: of the link to host memory, one way; 0: none, or not stated.
        host_link_efficiency: the share that copies of pinned memory reach.
        source: where the figures are from.
    """

    device: str = "cuda"
    threads: int = 0
    asynchronous: bool = True
    matmul_fp32_flops_per_s: float = 0.0
    matmul_bf16_flops_per_s: float = 0.0
    matmul_efficiency: float = 0.8
    matmul_half_size: float = 400.0
    attention_forward_efficiency: float = 0.55
    attention_backward_efficiency: float = 0.42
    causal_share: float = 0.5
    bandwidth_bytes_per_s: float = 0.0
    bandwidth_efficiency: float = 0.82
    cache_bytes: float = 0.0
    cache_bandwidth_bytes_per_s: float = 0.0
    exponential_bytes_per_s: float = 0.0
    optimizer_bytes_per_s: float = 0.0
    kernel_overhead_s: float = 2e-6
    forward_dispatch_s: float = 9e-6
    backward_dispatch_s: float = 6e-6
    region_overhead_s: float = 150e-6
    selective_dispatch_s: float = 20e-6
    host_link_bytes_per_s: float = 0.0
    host_link_efficiency: float = 0.8
    source: str = ""
    overridden: tuple[str, ...] = field(default=(), compare=False)

    def matmul_flops_per_s(self, dtype: str) -> float:
        """The dense peak for a dtype by its torch name; 8-bit formats run as bf16."""
        known = self.matmul_fp32_flops_per_s, self.matmul_bf16_flops_per_s
        first, second = known if dtype in ("float32", "float64") else known[::-1]
        return first or second

    def to_json(self) -> str:
        """One JSON object, as :meth:`from_json` reads it."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Rates":
        """The inverse of :meth:`to_json`. Raises ValueError where the text is not of this version."""
        found = json.loads(text)
        if not isinstance(found, dict) or set(found) != {f.name for f in fields(cls)}:
            raise ValueError("not a calibration of this version")
        return cls(**{**found, "overridden": tuple(found["overridden"])})

    def replaced(self, overrides: Mapping[str, Any]) -> "Rates":
        """These with some figures replaced by name.

        Raises UsageError naming the key, its value and what is allowed.
        """
        return dataclasses.replace(self, **checked(overrides), overridden=tuple(sorted(overrides)))


_SHARES: tuple[str, ...] = (
    "matmul_efficiency",
    "attention_forward_efficiency",
    "attention_backward_efficiency",
)
_SHARES += ("causal_share", "bandwidth_efficiency", "host_link_efficiency")
# Time is divided by these.
_POSITIVE = (*_SHARES, "matmul_fp32_flops_per_s", "matmul_bf16_flops_per_s", "bandwidth_bytes_per_s")
_TEXTS = ("device", "source", "overridden")
OVERRIDABLE = tuple(f.name for f in fields(Rates) if f.name not in (*_TEXTS, "threads"))


def checked(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """``overrides`` with their types; raises UsageError on a name or a value that cannot be."""
    found: dict[str, Any] = {}
    for name, value in overrides.items():
        key = f"rates.{name}"
        if name not in OVERRIDABLE:
            raise UsageError(key, value, f"unknown; expected one of {', '.join(OVERRIDABLE)}")
        if name == "asynchronous":
            if not isinstance(value, bool):
                raise UsageError(key, value, "expected true or false")
            found[name] = value
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(key, value, "expected a number")
        if not 0 <= value < float("inf") or (name in _POSITIVE and value == 0):
            raise UsageError(key, value, "expected a finite number above 0, or 0 where that has a meaning")
        if name in _SHARES and value > 1:
            raise UsageError(key, value, "expected a share of at most 1")
        found[name] = float(value)
    return found


# Engineering values, chosen once and not fitted to any published training step: what vendors' matrix
# libraries reach of a dense peak at the sizes of a large model (0.7 to 0.75, with the size's share below);
# what FlashAttention-2 states of its kernels (Dao 2023, arXiv:2307.08691, figures 4 to 6: 50 to 73 %
# forward, and backward less); stream benchmarks of HBM; a few microseconds for a launch, and an eager
# operator's way through Python and autograd.
_DEFAULT_SOURCE = "engineering values for efficiencies and overheads"


def rates_of(hardware: HardwareConfig, overrides: Mapping[str, Any]) -> Rates:
    """The rates of an accelerator as its entry states its peaks, with ``overrides`` by name.

    Raises UsageError where an override cannot be, or where the entry states no peak: a CPU is calibrated.
    """
    peaks, given = hardware.peak_flops_per_s, checked(overrides)
    rates = Rates(
        device=hardware.device,
        asynchronous=hardware.device != "cpu",
        matmul_fp32_flops_per_s=float(peaks.get("fp32", 0.0)),
        matmul_bf16_flops_per_s=float(peaks.get("bf16", 0.0)),
        bandwidth_bytes_per_s=float(hardware.bandwidth_bytes_per_s),
        host_link_bytes_per_s=float(hardware.host_bandwidth_bytes_per_s),
        source=f"{hardware.name}: {hardware.source}; {_DEFAULT_SOURCE}",
    ).replaced(given)
    if (
        not (rates.matmul_fp32_flops_per_s or rates.matmul_bf16_flops_per_s)
        or not rates.bandwidth_bytes_per_s
    ):
        allowed = "states no peak rates to predict time from; name a card of conf/hardware, or calibrate"
        raise UsageError("hardware", hardware.name, allowed)
    return rates

"""The devices of this machine, each lent to one child at a time."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from suite.errors import UsageError

# Set in the child before it touches a device, so that the lent one is its device 0.
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "HIP_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}


@dataclass(frozen=True)
class Lease:
    """One place where one child at a time may run."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)


def leases(fingerprint: Mapping[str, Any], device: str, ids: str) -> list[Lease]:
    """The places for cells on ``device``: one on the CPU, whose rounds never overlap; else per device.

    ``ids`` is ``device.ids``: ``all``, or device numbers separated by commas, counted among those
    that are visible to this process. Raises UsageError if there is no such device.
    """
    if device == "cpu":
        return [Lease("cpu")]
    if device != fingerprint["type"]:
        raise UsageError("device.type", device, f"this machine has {fingerprint['type']}")
    count = int(fingerprint["count"])
    variable = _VISIBLE.get("rocm" if fingerprint["rocm"] else device)
    if variable is None:
        return [Lease(f"{device}:0")]
    # A scheduler may have shown us some devices only; the numbers then count among those.
    shown = [name for name in os.environ.get(variable, "").split(",") if name]
    names = shown if len(shown) == count else [str(index) for index in range(count)]
    return [Lease(f"{device}:{i}", {variable: names[i]}) for i in _chosen(ids, count)]


def _chosen(ids: str, count: int) -> list[int]:
    if ids == "all":
        return list(range(count))
    allowed = f"all, or numbers from 0 to {count - 1} separated by commas"
    try:
        chosen = [int(part) for part in ids.split(",")]
    except ValueError:
        raise UsageError("device.ids", ids, allowed) from None
    if len(set(chosen)) != len(chosen) or not all(0 <= index < count for index in chosen):
        raise UsageError("device.ids", ids, allowed)
    return chosen

"""Which entry of ``conf/hardware/`` describes the device at hand."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from omegaconf import DictConfig

from suite.config.load import load_hardware
from suite.config.schema import HardwareConfig


def described(hardware: HardwareConfig, host: dict[str, Any]) -> dict[str, Any]:
    """The fingerprint of a device that is not here: this host's, with the card of the entry.

    ``described`` tells it from one that was found.
    """
    return {
        **host,
        "type": hardware.device,
        "name": hardware.name,
        "count": 1,
        "memory_bytes": hardware.memory_bytes or host.get("memory_bytes", 0),
        "capability": hardware.capability,
        "driver": "",
        "described": True,
        "warnings": [],
    }


def match_hardware(
    node: DictConfig, entries: Callable[[], Iterable[DictConfig]], fingerprint: dict[str, Any]
) -> HardwareConfig:
    """The chosen entry, or for ``auto`` the one whose ``match`` fits the device's name.

    A device that no entry matches gets an entry without peaks: MFU is then not stated rather than
    computed against a guess. Accelerators that share a name differ in memory: the nearest one wins.
    """
    chosen = load_hardware(node)
    if chosen.name != "auto":
        return chosen
    name = "cpu" if fingerprint["type"] == "cpu" else str(fingerprint.get("name", ""))
    memory = int(fingerprint.get("memory_bytes") or 0)
    fitting = [h for h in map(load_hardware, entries()) if h.match and re.search(h.match, name)]
    if not fitting:
        return HardwareConfig(name=name or "unknown", source="not in conf/hardware")
    return min(fitting, key=lambda h: abs(h.memory_bytes - memory))

"""What was measured on: the device, its driver, torch, the host.

:func:`fingerprint` asks torch and therefore runs in a child. It uses ``torch.accelerator`` and the
module of the current accelerator, so that CUDA, ROCm and XPU answer through the same code.
"""

import contextlib
import os
import platform
import re
import socket
from importlib import metadata
from pathlib import Path
from typing import Any

from suite.errors import UsageError

# May differ between two measurements that are still comparable.
VOLATILE = ("host", "load_1min", "warnings")


def stable(fingerprint: dict[str, Any]) -> dict[str, Any]:
    """The part that must be equal for figures to be compared."""
    return {name: value for name, value in fingerprint.items() if name not in VOLATILE}


def fingerprint(device: str) -> dict[str, Any]:
    """Flat and of plain JSON types; what does not exist here is an empty text or 0.

    ``device`` is ``auto`` (the current accelerator, else the CPU), ``cpu`` or an accelerator's
    type. Raises UsageError naming ``device.type`` if this machine has none of it.
    """
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    here = accelerator.type if accelerator is not None else "cpu"
    kind = here if device == "auto" else device
    if kind not in ("cpu", here):
        raise UsageError("device.type", device, f"this machine has {' and '.join(sorted({'cpu', here}))}")
    host = {
        "cpu": _cpu_model(),
        "cores": _cores(),
        "host_memory_bytes": _host_memory_bytes(),
        "host": socket.gethostname(),
        "load_1min": round(os.getloadavg()[0], 2),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "lightning": metadata.version("lightning"),
        "cuda": str(torch.version.cuda or ""),
        "rocm": str(getattr(torch.version, "hip", None) or ""),
    }
    found = _accelerator(kind) if kind != "cpu" else _cpu(host)
    return {**host, **found, "warnings": _load_warnings(host) + found["warnings"]}


def _cpu(host: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "cpu",
        "name": host["cpu"],
        "count": 1,
        "memory_bytes": host["host_memory_bytes"],
        "capability": "",
        "driver": "",
        "warnings": [],
    }


def _accelerator(kind: str) -> dict[str, Any]:
    import torch

    # First: what follows makes this process one that uses the device.
    warnings = _foreign_processes()
    backend: Any = torch.get_device_module(kind)
    count = torch.accelerator.device_count()
    named = [_described(backend, index) for index in range(count)]
    if len(set(named)) > 1:
        warnings.append(f"the devices differ: {', '.join(name for name, _ in named)}")
    name, memory = named[0]
    capability: Any = ""
    with contextlib.suppress(AttributeError, RuntimeError):
        capability = backend.get_device_capability(0)
    if isinstance(capability, tuple):
        capability = ".".join(map(str, capability))
    return {
        "type": kind,
        "name": name,
        "count": count,
        "memory_bytes": memory,
        "capability": capability if isinstance(capability, str) else "",
        "driver": _driver(backend),
        "warnings": warnings,
    }


def _described(backend: Any, index: int) -> tuple[str, int]:
    """Name and memory in bytes of device ``index``."""
    name = str(backend.get_device_name(index)) if hasattr(backend, "get_device_name") else backend.__name__
    memory = 0
    with contextlib.suppress(AttributeError, RuntimeError):
        memory = int(backend.get_device_properties(index).total_memory)
    return name, memory


def _driver(backend: Any) -> str:
    """The kernel driver's version, from whoever tells it."""
    with contextlib.suppress(OSError, AttributeError):
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
        version = re.search(r"Module.*?\s(\d+\.[\d.]+)\s", text)
        if version is not None:
            return version[1]
    with contextlib.suppress(OSError):
        return Path("/sys/module/amdgpu/version").read_text(encoding="utf-8").strip()
    with contextlib.suppress(AttributeError, RuntimeError):
        return str(backend.get_device_properties(0).driver_version)
    return ""


def _load_warnings(host: dict[str, Any]) -> list[str]:
    load, cores = host["load_1min"], host["cores"]
    if load > 0.5 * cores:
        return [f"the host was busy before the run: load {load:g} on {cores} cores"]
    return []


def _foreign_processes() -> list[str]:
    """One warning per NVIDIA device that somebody else computes on; silent without NVML."""
    try:
        import pynvml
    except ImportError:
        return []
    found = []
    try:
        pynvml.nvmlInit()
        try:
            for index in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                others = [
                    process.pid
                    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
                    if process.pid != os.getpid()
                ]
                if others:
                    pids = ", ".join(map(str, others))
                    found.append(f"NVML device {index} is also used by process {pids}")
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return []
    return found


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model"):
                return value.strip()
    return platform.processor() or platform.machine()


def _cores() -> int:
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _host_memory_bytes() -> int:
    with contextlib.suppress(ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0

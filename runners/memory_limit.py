"""How much host memory a child may take, and whether the kernel's OOM killer has struck."""

import os
from pathlib import Path

from suite.units import parse_bytes

# What the parent, the page cache and the desktop of whoever is looking need to stay alive.
_SHARE = 0.85
_CGROUPS = Path("/sys/fs/cgroup")


def host_memory_limit(setting: str, device: str) -> int | None:
    """Bytes of private memory one child may have; None for no limit.

    ``setting`` is ``limits.host_memory``: ``auto`` or bytes. Off the CPU there is no limit, since
    device runtimes reserve address space far beyond the memory they use.
    Raises UsageError naming ``limits.host_memory``.
    """
    limit = None if setting == "auto" else parse_bytes(setting, "limits.host_memory")
    if device != "cpu":
        return None
    if limit is not None:
        return limit
    available = _available_bytes()
    return None if available is None else int(available * _SHARE)


def _available_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        available = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    limit, used = _cgroup_number("memory.max", "memory.limit_in_bytes"), None
    if limit is not None:
        used = _cgroup_number("memory.current", "memory.usage_in_bytes")
    return min(available, limit - (used or 0)) if limit is not None else available


def oom_kills() -> int | None:
    """Processes of this control group the kernel has killed for memory; None where it does not say."""
    for file in _cgroup_files("memory.events", "memory.oom_control"):
        for line in _read(file).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def _cgroup_number(v2: str, v1: str) -> int | None:
    for file in _cgroup_files(v2, v1):
        text = _read(file).strip()
        if text.isdigit():
            return int(text)
    return None


def _cgroup_files(v2: str, v1: str) -> list[Path]:
    """The files of that name in the control group of this process, version 2 first."""
    files: list[Path] = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            files.insert(0, _CGROUPS / group.lstrip("/") / v2)
        elif "memory" in controllers.split(","):
            files.append(_CGROUPS / "memory" / group.lstrip("/") / v1)
    return [file for file in files if os.access(file, os.R_OK)]


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""

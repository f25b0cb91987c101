"""What an accelerator's caching allocator and driver say of a step, phase by phase.

Torch's own accelerator API only: the same code for CUDA, ROCm and XPU.
"""

import torch

_KINDS = ("allocated", "active", "reserved")


class AllocatorMeter:
    """Peaks of each phase, from the allocator's statistics; reading them does not wait for the device."""

    def __init__(self) -> None:
        self.phase_peaks: dict[str, int] = {}
        self.peaks = dict.fromkeys(_KINDS, 0)
        self.device_used_bytes = 0
        self._retries_before = _statistic("num_alloc_retries")

    def end_phase(self, phase: str) -> None:
        """Take the peaks since the last call as those of ``phase``, and start anew."""
        for kind in _KINDS:
            self.peaks[kind] = max(self.peaks[kind], _statistic(f"{kind}_bytes.all.peak"))
        peak = _statistic("allocated_bytes.all.peak")
        self.phase_peaks[phase] = max(self.phase_peaks.get(phase, 0), peak)
        torch.accelerator.reset_peak_memory_stats()

    def end_step(self) -> None:
        """Read what the driver says is used on the device: this process and everything else on it."""
        free, total = torch.accelerator.get_memory_info()
        self.device_used_bytes = max(self.device_used_bytes, total - free)

    def figures(self) -> dict[str, float]:
        """Bytes and counts by the names that records use."""
        return {
            "peak_allocated_bytes": self.peaks["allocated"],
            "peak_active_bytes": self.peaks["active"],
            "peak_reserved_bytes": self.peaks["reserved"],
            "device_used_bytes": self.device_used_bytes,
            "alloc_retries_count": _statistic("num_alloc_retries") - self._retries_before,
        }


def _statistic(name: str) -> int:
    return int(torch.accelerator.memory_stats().get(name, 0))

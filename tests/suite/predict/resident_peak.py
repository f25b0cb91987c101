"""A fresh process that trains one cell and prints what the operating system saw, in one line of JSON.

Torch is asked nothing. Glibc takes every block of 64 KiB or more from the system and gives it back at once,
and the most that was resident (``VmHWM``) is reset as the steady step begins.
"""

import ctypes
import gc
import json
import re
import sys
from pathlib import Path

import torch
from make_cell import make_cell

from suite.cell import Cell
from suite.measure.setup import build_subject
from suite.training.data import Batch
from suite.training.loop import StepObserver, train

STEADY_STEP = 1
_MMAP_THRESHOLD, _THRESHOLD_BYTES = -3, 1 << 16  # M_MMAP_THRESHOLD of malloc.h
_RESET_PEAK = "5"  # see proc(5), clear_refs


def cell_of(seq_len: int, policy: str) -> Cell:
    """The cell that is trained: large blocks, and few small ones."""
    return make_cell("llama_nano", {"family": policy}, seq_len=seq_len, batch_size=8)


def resident_bytes(name: str) -> int:
    """``VmRSS`` or ``VmHWM`` of this process."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


class _Observer(StepObserver):
    peak_bytes = 0

    def on_step_start(self, index: int, batch: Batch) -> None:
        if index == STEADY_STEP:
            Path("/proc/self/clear_refs").write_text(_RESET_PEAK)

    def on_step_end(self, index: int) -> bool:
        self.peak_bytes = resident_bytes("VmHWM")
        return index >= STEADY_STEP


def run(cell: Cell) -> int:
    """Train the cell for two steps; bytes resident at the peak of the second."""
    subject = build_subject(cell.config, instrumented=False)
    subject.apply_policy()
    observer = _Observer()
    train(subject.model, cell.config, observer, max_steps=STEADY_STEP + 1)
    return observer.peak_bytes


def main(policy: str, seq_len: int) -> None:
    """Bytes that the steady step's peak is above the process without a model."""
    glibc = ctypes.CDLL(None)
    glibc.mallopt(_MMAP_THRESHOLD, _THRESHOLD_BYTES)
    torch.set_num_threads(1)
    run(cell_of(64, policy))  # what is loaded and made once
    gc.collect()
    glibc.malloc_trim(0)
    before = resident_bytes("VmRSS")
    print(json.dumps({"resident_bytes": run(cell_of(seq_len, policy)) - before}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""Runs the real command line in a folder of the test's own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

# A cell of milliseconds: everything is real, only small.
SMALL = [
    "model=llama_nano",
    "seq_len=16",
    "rounds=1",
    "trainer.steps=1",
    "trainer.warmup_min_steps=0",
    "trainer.warmup_max_steps=1",
    "device.threads=1",
]


def environment() -> dict[str, str]:
    """This process's, with the project importable from any folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}


def suite(folder: Path, *words: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """``python -m suite WORDS`` in ``folder``, to its end."""
    command = [sys.executable, *python, "-m", "suite", *words]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=240, check=False
    )

"""Cells, sessions and a tracker for the runners' tests."""

from pathlib import Path

import make_cell as cases

from suite.cell import Cell
from suite.config.schema import (
    HardwareConfig,
    LimitsConfig,
    ModelConfig,
    PathsConfig,
    PolicyConfig,
    SessionConfig,
    TrainerConfig,
)

MEASURE = "child_scenarios:measure"
MODEL = ModelConfig("tiny", "llama", 64, 2, 32, 2, 2, 64, 64)


def make_cell(do="ok", seq_len=16, device="cpu", threads=1, **options) -> Cell:
    """``make_cell("none")`` is the reference policy; anything else is a scenario of a child."""
    policy = PolicyConfig("none") if do == "none" else PolicyConfig("scenario", {"do": do, **options})
    workload = {"seq_len": seq_len, "batch_size": 1, "device": device, "threads": threads}
    return Cell(cases.base_config(MODEL, policy=policy, **workload))


def make_session(runs: Path, **changes) -> SessionConfig:
    night = {
        "name": "night",
        "rounds": 2,
        "trainer": TrainerConfig(),
        "limits": LimitsConfig(timeout_s=60.0, grace_s=0.5),
        "paths": PathsConfig(str(runs), str(runs / "reports")),
        "hardware": HardwareConfig(),
        "report": True,
    }
    return cases.make_session(**{**night, **changes})


class NotingTracker:
    """Notes what it is told; can be made to fail."""

    pending = 0

    def __init__(self, failing=()):
        self.failing, self.calls, self.cells, self.manifest = failing, [], [], None

    def _note(self, name):
        self.calls.append(name)
        if name in self.failing:
            raise ConnectionError(f"{name} refused\nand more")

    def open(self, manifest):
        self._note("open")

    def cell(self, summary, store):
        self.cells.append((summary.policy, summary.status))
        self._note("cell")

    def close(self, manifest, report_dir):
        self.manifest = dict(manifest)
        self._note("close")

    def where(self):
        return "nowhere\nlook: true"

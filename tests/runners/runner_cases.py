"""Cells, sessions and a tracker for the runners' tests."""

import dataclasses
from pathlib import Path

from suite.cell import Cell
from suite.config.schema import (
    CellConfig,
    DataConfig,
    HardwareConfig,
    LimitsConfig,
    ModelConfig,
    OptimizerConfig,
    PathsConfig,
    PolicyConfig,
    SessionConfig,
    TrackingConfig,
    TrainerConfig,
)

MEASURE = "child_scenarios:measure"
MODEL = ModelConfig("tiny", "llama", 64, 2, 32, 2, 2, 64, 64)


def make_cell(do="ok", seq_len=16, device="cpu", threads=1, **options) -> Cell:
    """``make_cell("none")`` is the reference policy; anything else is a scenario of a child."""
    policy = PolicyConfig("none") if do == "none" else PolicyConfig("scenario", {"do": do, **options})
    return Cell(
        CellConfig(
            model=MODEL,
            policy=policy,
            seq_len=seq_len,
            batch_size=1,
            precision="fp32",
            attention="sdpa",
            compile="none",
            optimizer=OptimizerConfig(),
            data=DataConfig(),
            device=device,
            threads=threads,
            seed=0,
        )
    )


def make_session(runs: Path, **changes) -> SessionConfig:
    session = SessionConfig(
        name="night",
        passes=("memory", "flops", "parity", "time"),
        rounds=2,
        trainer=TrainerConfig(),
        limits=LimitsConfig(timeout_s=60.0, grace_s=0.5),
        tracking=TrackingConfig(kind="none"),
        paths=PathsConfig(str(runs), str(runs / "reports")),
        hardware=HardwareConfig(),
        device_ids="all",
        budget_bytes=None,
        reference="none",
        retry=(),
        on_failure="continue",
        max_failures=0,
        adopt=False,
        plan=False,
        mode="measure",
        report=True,
    )
    return dataclasses.replace(session, **changes)


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

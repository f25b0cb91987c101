"""The time pass: its protocol. How long anything takes is never asserted."""

import pytest
from make_cell import make_cell, make_session

from suite.config.schema import HardwareConfig, TrainerConfig
from suite.measure import measure
from suite.measure.time import peak_rate


@pytest.mark.parametrize("steps", [1, 4])
def test_times_as_many_steps_as_asked_and_reports_their_median(steps: int) -> None:
    protocol = TrainerConfig(warmup_min_steps=1, warmup_max_steps=3, steps=steps)
    found = measure(make_cell(), "time", 0, make_session(trainer=protocol))
    times = found.detail["step_times_s"]
    assert len(times) == found.figures["steps_count"] == steps
    assert min(times) <= found.figures["step_time_s"] <= max(times)
    tokens = found.figures["tokens_per_s"] * found.figures["step_time_s"]
    assert tokens == pytest.approx(2 * 32)
    assert 1 <= found.figures["warmup_steps_count"] <= 3


def test_steps_that_never_settle_are_said_so() -> None:
    protocol = TrainerConfig(warmup_min_steps=3, warmup_max_steps=4, steady_within=0.0, steps=2)
    found = measure(make_cell(), "time", 0, make_session(trainer=protocol))
    assert found.figures["converged_count"] == 0
    assert found.figures["warmup_steps_count"] == 4
    assert found.warnings == ["steps still varied by more than 0% after 4 warm-up steps"]


def test_the_denominator_is_stated_or_measured_and_always_named() -> None:
    config = make_cell().config
    stated = HardwareConfig(name="x", peak_flops_per_s={"fp32": 1e12}, source="a data sheet")
    assert peak_rate(config, stated) == (1e12, "x, dense fp32 peak: a data sheet")
    rate, source = peak_rate(config, HardwareConfig(name="cpu"))
    assert rate > 0
    assert "measured in this round" in source

"""A cell's prediction with its time, where there are rates to predict it from."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from suite.config.schema import CellConfig, HardwareConfig, ParallelConfig
from suite.measure import Measurement
from suite.predict.cell import predict_traced
from suite.predict.time import stored
from suite.predict.time.rates import OVERRIDABLE, Rates, rates_of
from suite.predict.time.roofline import TimeEstimate, predict_time
from suite.predict.time.table import OperatorTable


def predict_timed(
    config: CellConfig,
    *,
    hardware: HardwareConfig,
    assumptions: Mapping[str, Any] | None = None,
    fingerprint: dict[str, Any] | None = None,
    calibrations: Path | None = None,
) -> Measurement:
    """As :func:`suite.predict.cell.predict_cell`, with ``step_time_s`` and what it is made of.

    A card's time follows from its entry of ``conf/hardware``; a CPU's from a calibration of this machine,
    which ``+sweep=calibrate`` makes, and without one there is no time. What devices say to each other is
    not in it.

    Args:
        config: of the cell.
        hardware: the device.
        assumptions: by name, of memory and of time.
        fingerprint: of this machine, where the device is its own.
        calibrations: the folder of its calibrations.
    """
    given = dict(assumptions or {})
    found, trace = predict_traced(config, hardware=hardware, assumptions=given)
    overrides = {name: value for name, value in given.items() if name in OVERRIDABLE}
    rates, operators = _rates(config, hardware, overrides, fingerprint, calibrations)
    if rates is None:
        return found
    estimate = predict_time(trace, config, rates, operators)
    spread = config.parallel
    passes = spread.micro_batches
    idle = (spread.pp - 1) / (passes * spread.vpp)
    step_s = _step_s(estimate, passes, idle)
    figures: dict[str, float] = {
        "step_time_s": step_s,
        "tokens_per_s": config.batch_size * config.seq_len * passes * spread.dp / step_s,
        "replay_time_s": estimate.replay_s,
    }
    figures |= {f"{phase}_time_s": seconds for phase, seconds in estimate.phases_s.items()}
    source = "measured operators and rates" if operators is not None else "rates of its operators"
    detail = {"time_by_class_s": estimate.classes_s}
    known = dict(found.detail.get("assumptions", {}))
    known["rates"] = {"value": _told(rates), "source": rates.source}
    if config.parallel != ParallelConfig():
        known["communication"] = {
            "value": "none",
            "source": "what devices say to each other is not modelled",
        }
    sources = found.detail["sources"] | dict.fromkeys(figures, source)
    return replace(
        found,
        figures=found.figures | figures,
        detail=found.detail | detail | {"sources": sources, "assumptions": known},
    )


def _step_s(estimate: TimeEstimate, passes: int, idle: float) -> float:
    """Of ``passes`` micro-batches and one optimizer step; a pipeline fills and drains beside."""
    optimizer = estimate.phases_s.get("optimizer", 0.0)
    return (estimate.step_time_s - optimizer) * passes * (1 + idle) + optimizer


def _rates(
    config: CellConfig,
    hardware: HardwareConfig,
    overrides: Mapping[str, Any],
    fingerprint: dict[str, Any] | None,
    calibrations: Path | None,
) -> tuple[Rates | None, OperatorTable | None]:
    if fingerprint is not None and calibrations is not None:
        threads = config.threads if config.device == "cpu" else 0
        rates = stored.load(fingerprint, calibrations, threads)
        if rates is not None:
            operators = stored.load_operators(config, fingerprint, calibrations)
            return rates.replaced(overrides), operators
    if config.device == "cpu" or not hardware.bandwidth_bytes_per_s:
        return None, None
    return rates_of(hardware, overrides), None


def _told(rates: Rates) -> dict[str, Any]:
    return {name: getattr(rates, name) for name in OVERRIDABLE}

"""The predict pass: what memory and FLOPs passes would say, and whether the device can hold it."""

from pathlib import Path

from suite.cell import Cell
from suite.config.schema import SessionConfig
from suite.measure import Measurement
from suite.predict.timed import predict_timed
from suite.units import show_apart


def take(cell: Cell, round_: int, session: SessionConfig) -> Measurement:  # noqa: ARG001
    """Predict the cell on the session's hardware. ``oom`` where no arrangement of its memory would do.

    Between what the allocator needs at least and what it reserves as torch configures it by default, the
    cell is taken to fit, and a warning says so.
    """
    hardware = session.hardware
    found = predict_timed(
        cell.config,
        hardware=hardware,
        assumptions=session.assumptions,
        fingerprint=session.fingerprint,
        calibrations=Path(session.paths.runs) / "calibration",
    )
    capacity = hardware.memory_bytes
    if cell.config.device == "cpu" or not capacity:
        return found
    least, most = found.figures["least_device_used_bytes"], found.figures["device_used_bytes"]
    if least > capacity:
        needed, has = show_apart(least, capacity)
        phase = found.detail["peak_phase"]
        message = f"predicted: needs {needed} in {phase}, {hardware.name} has {has}"
        error = {"type": "PredictedOutOfMemory", "message": message, "where": ""}
        return Measurement("oom", found.figures, found.detail, found.warnings, error)
    if most > capacity:
        needed, has = show_apart(most, capacity)
        found.warnings.append(
            f"may need {needed} of {has} if the allocator's segments are fragmented; "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True avoids that"
        )
    return found

"""Where calibrations live: one JSON file per machine and number of threads, and one per workload beside it.

<runs>/calibration/<digest of the stable fingerprint>.json
<runs>/calibration/<the same>-<the workload's id>.json
"""

from pathlib import Path
from typing import Any

from suite.cell import Cell, digest
from suite.config.schema import CellConfig
from suite.measure.fingerprint import stable
from suite.predict.time.rates import Rates
from suite.predict.time.table import OperatorTable
from suite.store import write_atomic


def path_of(fingerprint: dict[str, Any], folder: Path, threads: int) -> Path:
    """The file of a machine's rates; ``threads`` 0: an accelerator's."""
    return folder / f"{digest({**stable(fingerprint), 'threads': threads})}.json"


def save(rates: Rates, fingerprint: dict[str, Any], folder: Path) -> Path:
    """Store what :func:`~suite.predict.time.calibrate.calibrate` measured; returns the file."""
    path = path_of(fingerprint, folder, rates.threads)
    write_atomic(path, rates.to_json())
    return path


def load(fingerprint: dict[str, Any], folder: Path, threads: int = 0) -> Rates | None:
    """The rates of this machine on so many threads; None where there are none of this version."""
    try:
        return Rates.from_json(path_of(fingerprint, folder, threads).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return None


def save_operators(
    table: OperatorTable, config: CellConfig, fingerprint: dict[str, Any], folder: Path
) -> Path:
    """Store the measured operators of a workload; returns the file."""
    path = _operators_path(config, fingerprint, folder)
    write_atomic(path, table.to_json())
    return path


def load_operators(config: CellConfig, fingerprint: dict[str, Any], folder: Path) -> OperatorTable | None:
    """The measured operators of the workload of ``config``; None where there are none."""
    try:
        return OperatorTable.from_json(
            _operators_path(config, fingerprint, folder).read_text(encoding="utf-8")
        )
    except (OSError, ValueError, TypeError):
        return None


def _operators_path(config: CellConfig, fingerprint: dict[str, Any], folder: Path) -> Path:
    machine = path_of(fingerprint, folder, config.threads if config.device == "cpu" else 0)
    return machine.with_name(f"{machine.stem}-{Cell(config).workload_id}.json")

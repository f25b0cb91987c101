"""From Hydra's overrides to a workload, without asking any device: what is there is not needed here."""

import os
from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from suite.cell import Cell
from suite.config.load import load_cell
from suite.config.messages import is_composition_error, one_line
from suite.errors import UsageError

CONF = Path(__file__).resolve().parent.parent.parent / "conf"


class BadOverride(UsageError):
    """What Hydra refused, in the one line that the measuring command prints too."""

    def __init__(self, line: str) -> None:
        key, _, allowed = line.partition(": ")
        super().__init__(key, "", allowed)
        self.args = (line,)


def workload_of(overrides: Sequence[str]) -> tuple[Cell, bool]:
    """The cell that the overrides describe, and whether they name a policy of their own.

    The device is the CPU unless one is named: it decides which kernels the formulas assume. Raises
    UsageError.
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        for override in parsed:
            if override.is_sweep_override():
                line = f"{override.input_line}: several values for one key; the table is of one workload"
                raise BadOverride(line)
        with initialize_config_dir(str(CONF), version_base="1.3", job_name="policies"):
            composed = compose("config", overrides=list(overrides))
    except UsageError:
        raise
    except Exception as problem:
        if not is_composition_error(problem):
            raise
        raise BadOverride(one_line(problem, CONF, overrides)) from None
    own = any(override.key_or_group.partition(".")[0] == "policy" for override in parsed)
    if composed.sweep.products:
        name = composed.sweep.name
        raise UsageError("sweep", name, "describes many workloads: name one, such as model=llama3_8b")
    return load_cell(composed, {"type": _device(composed), "cores": os.cpu_count()}), own


def _device(composed: DictConfig) -> str:
    named = str(composed.device.type)
    return "cpu" if named == "auto" else named

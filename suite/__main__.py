"""The command line: ``python -m suite``. Composes with Hydra, runs, and turns errors into one line.

This is the composition root: the only module of the package that knows the packages above it.
"""

import os
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from suite.config.messages import one_line, one_line_errors
from suite.errors import UsageError

CONF = Path(__file__).resolve().parent.parent / "conf"


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def _run(_: DictConfig) -> None:
    from runners.command import run_jobs

    raise SystemExit(run_jobs([list(HydraConfig.get().overrides.task)]))


def main() -> None:
    """Entry point. Exit codes: 0 answered, 2 bad input, 5 crashed or wrong cells, 130 interrupted."""
    verbose = os.environ.setdefault("HYDRA_FULL_ERROR", "1") == "2"
    try:
        _run()
    except (UsageError, *one_line_errors()) as problem:
        if verbose:
            raise
        print(f"error: {one_line(problem, CONF)}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()

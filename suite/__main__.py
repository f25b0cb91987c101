"""The command line: ``python -m suite``. Composes with Hydra, runs, and turns errors into one line.

This is the composition root: the only module of the package that knows the packages above it.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from suite.config.messages import is_composition_error, one_line
from suite.errors import UsageError

CONF = Path(__file__).resolve().parent.parent / "conf"


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def _run(_: DictConfig) -> None:
    from runners.command import run_jobs

    # Caught in here: Hydra would print a line of its own before it lets an exception through.
    try:
        code = run_jobs([list(HydraConfig.get().overrides.task)])
    except Exception as problem:
        if not _is_refusal(problem):
            raise
        code = _refuse(problem)
    raise SystemExit(code)


def _is_refusal(problem: Exception) -> bool:
    return isinstance(problem, UsageError) or is_composition_error(problem)


def _refuse(problem: Exception) -> int:
    print(f"error: {one_line(problem, CONF)}", file=sys.stderr)
    return 2


def _refuse_option(_: argparse.ArgumentParser, message: str) -> NoReturn:
    hint = "--help lists the options, which come before the keys; keys are given as key=value"
    print(f"error: {message}; {hint}", file=sys.stderr)
    raise SystemExit(2)


def main() -> None:
    """Entry point. Exit codes: 0 answered, 2 bad input, 5 crashed or wrong cells, 130 interrupted."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # or Hydra exits by itself, with code 1
    # argparse, by which Hydra reads its own options, would print its usage before the line that matters.
    argparse.ArgumentParser.error = _refuse_option  # type: ignore[assignment,method-assign]
    try:
        _run()
    except Exception as problem:
        if not _is_refusal(problem):
            raise
        raise SystemExit(_refuse(problem)) from None
    except KeyboardInterrupt:  # before the session takes the signals: nothing has been measured
        print("interrupted before anything was measured", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()

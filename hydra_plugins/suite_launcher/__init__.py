"""The thin adapter by which a Hydra multirun becomes one session of the suite. No logic here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig

from suite.config.load import check_writable


class LocalLauncher(Launcher):
    """Hands all jobs of a multirun to one session, so that their rounds can be interleaved."""

    def __init__(self, **_: Any) -> None:
        """Nothing to configure."""

    def setup(self, *, config: DictConfig, **_: Any) -> None:
        """Refuse a folder in which Hydra, which writes there next, could not write. Called by Hydra."""
        check_writable("paths.runs", Path(config.paths.runs))

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:  # noqa: ARG002
        """Run every job as cells of one session; leaves by SystemExit where the verdict is not 0."""
        from runners.command import run_jobs

        code = run_jobs([list(overrides) for overrides in job_overrides])
        if code:
            raise SystemExit(code)
        return [_completed(overrides) for overrides in job_overrides]


def _completed(overrides: Sequence[str]) -> JobReturn:
    done = JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED)
    done.return_value = None
    return done

from pathlib import Path

import pytest
from child_scenarios import EXECUTIONS
from runner_cases import MEASURE, NotingTracker, make_session

from runners.forkserver import PRELOAD, ForkServer
from runners.session import run_session
from suite.store import RecordStore


@pytest.fixture(scope="session")
def server():
    """One for all tests: a process has only one."""
    server = ForkServer(preload=[PRELOAD, "child_scenarios"])
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def fingerprint(server):
    return server.probe("auto")


class Sweep:
    """A sweep folder in which sessions can be run one after the other."""

    def __init__(self, runs: Path, server, fingerprint):
        self.runs, self._server, self.fingerprint = runs, server, fingerprint
        self.store = RecordStore(runs / "night")
        self.reported = []

    def run(self, cells, *, refused=None, tracker=None, report=None, **changes):
        def page(root):
            self.reported.append(root)
            return self.runs / "reports" / "index.html"

        return run_session(
            cells,
            make_session(self.runs, **changes),
            refused=refused or {},
            command="python -m suite +sweep=night",
            server=self._server,
            fingerprint=self.fingerprint,
            tracker=tracker or NotingTracker(),
            report=report or page,
            measure=MEASURE,
        )

    def executions(self):
        """``(cell, pass, round)`` of every child that has run here, in order."""
        file = self.runs / EXECUTIONS
        lines = file.read_text().splitlines() if file.exists() else []
        return [(cell, name, int(r)) for cell, name, r in (line.split() for line in lines)]

    def status(self, cell, name="memory", round_=0):
        from suite.record import RecordKey

        record = self.store.read(RecordKey(cell.id, name, round_))
        return record.status if record else None


@pytest.fixture
def sweep(tmp_path, server, fingerprint):
    return Sweep(tmp_path, server, fingerprint)

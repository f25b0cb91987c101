"""A parent process of its own, for tests that kill or interrupt it: RUNS SECONDS CELLS PRELOAD."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[1])]

from runner_cases import MEASURE, NotingTracker, make_cell, make_session

from runners.forkserver import ForkServer
from runners.session import run_session


def main(runs: Path, seconds: float, count: int, preload: str) -> int:
    cells = [make_cell("none")] + [make_cell("slow", seconds=seconds, number=n) for n in range(count)]
    server = ForkServer(preload=[preload, "child_scenarios"])
    server.start()

    def report(root):
        (runs / "report.txt").write_text("partial or whole")
        return runs / "report.txt"

    return run_session(
        cells,
        make_session(runs, passes=("memory", "time")),
        refused={},
        command="test",
        server=server,
        fingerprint=server.probe("auto"),
        tracker=NotingTracker(),
        report=report,
        measure=MEASURE,
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))

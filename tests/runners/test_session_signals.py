"""Killed and interrupted parents: nothing lost, nothing twice, nobody left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from child_scenarios import EXECUTIONS

from runners.forkserver import PRELOAD
from suite.store import RecordStore

PARENT = Path(__file__).with_name("sweep_parent.py")
CELLS = 3
KEYS = (CELLS + 1) * 3


class Parent:
    """A session in a process, whose children write into ``runs``."""

    def __init__(self, runs, seconds, preload):
        self.runs, self.store = runs, RecordStore(runs / "night")
        command = [sys.executable, str(PARENT), str(runs), str(seconds), str(CELLS), preload]
        self._log = (runs / "parent.txt").open("ab")
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log, start_new_session=True)

    def executions(self):
        file = self.runs / EXECUTIONS
        return file.read_text().splitlines() if file.exists() else []

    def wait_for_executions(self, count):
        end = time.monotonic() + 60
        while len(self.executions()) < count:
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.02)

    def end(self):
        code = self.process.wait(timeout=60)
        self._log.close()
        return code

    def said(self):
        return (self.runs / "parent.txt").read_text()


@pytest.fixture
def start(tmp_path):
    parents = []

    def begin(seconds, preload="torch"):
        parents.append(Parent(tmp_path, seconds, preload))
        return parents[-1]

    yield begin
    for parent in parents:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.process.pid, signal.SIGKILL)
        parent.process.wait()


def processes_of(runs):
    """Processes that have a file below ``runs`` open: every child has its log, the parent its lock."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            opened = [str(fd.readlink()) for fd in process.joinpath("fd").iterdir()]
            if any(target.startswith(str(runs)) for target in opened):
                found.append(process.name)
    return found


def nobody_left(runs):
    end = time.monotonic() + 10
    while processes_of(runs):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_sigkill_loses_at_most_what_ran_and_a_restart_measures_nothing_twice(start, tmp_path):
    parent = start(0.3)
    parent.wait_for_executions(6)
    parent.process.kill()
    assert parent.end() == -signal.SIGKILL
    assert nobody_left(tmp_path), "a child outlived its parent"
    first = Counter(parent.executions())
    done = {f"{r.cell} {r.pass_} {r.round}" for r in parent.store.records()}
    assert len(done) >= 5
    assert len(first) - len(done) <= 1
    kept = {path: path.read_bytes() for path in parent.store.root.glob("records/*.json")}

    again = start(0.3)
    assert again.end() == 0, again.said()
    both = Counter(again.executions())
    assert all(both[key] == 1 for key in done), "measured twice"
    assert len(both) == len(again.store.records()) == KEYS
    assert sum(both.values()) - KEYS == len(set(first) - done)
    assert all(path.read_bytes() == text for path, text in kept.items())
    assert again.store.read_manifest()["state"] == "finished"


def test_the_first_interrupt_lets_the_child_finish_and_reports(start, tmp_path):
    parent = start(1.0, PRELOAD)
    parent.wait_for_executions(2)
    # As a scheduler does, and a terminal with Ctrl-C: to the whole group, the fork server's once too.
    os.killpg(parent.process.pid, signal.SIGTERM)
    assert parent.end() == 130, parent.said()
    assert len(parent.executions()) == len(parent.store.records())
    assert {record.status for record in parent.store.records()} == {"ok"}
    assert (tmp_path / "report.txt").exists()
    assert parent.store.read_manifest()["state"] == "interrupted"
    said = parent.said()
    assert "finishing what runs; press Ctrl-C again to kill it" in said
    assert "interrupted after " in said
    assert nobody_left(tmp_path)


def test_the_second_interrupt_kills_the_child_and_the_next_start_redoes_it(start, tmp_path):
    parent = start(600)
    parent.wait_for_executions(2)
    running = parent.executions()[-1]
    for _ in range(2):
        parent.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    assert parent.end() == 130, parent.said()
    assert nobody_left(tmp_path)
    (record,) = [r for r in parent.store.records() if r.status != "ok"]
    assert f"{record.cell} {record.pass_} {record.round}" == running
    assert (record.status, record.error["message"]) == ("interrupted", "stopped by the user")
    assert not (tmp_path / "report.txt").exists()

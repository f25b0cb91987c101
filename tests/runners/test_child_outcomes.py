"""Every way a child can end becomes the right status, by real processes and real signals."""

import os
import re
import time
from pathlib import Path

import pytest
from child_scenarios import SCENARIOS
from runner_cases import MEASURE, NotingTracker, make_cell, make_session

from runners.session import run_session
from suite.config.schema import LimitsConfig
from suite.record import RecordKey, validate
from suite.store import RecordStore

LIMITS = LimitsConfig(timeout_s=2.0, grace_s=0.3, host_memory="8GiB")
ELSEWHERE = ("slow", "exclusive", "meet", "kill_server")
CELLS = {name: make_cell(name) for name in SCENARIOS if name not in ELSEWHERE}


@pytest.fixture(scope="module")
def outcome(server, fingerprint, tmp_path_factory):
    """One session with one cell for each scenario, memory pass only: (exit code, store, runs)."""
    runs = tmp_path_factory.mktemp("outcomes")
    session = make_session(runs, passes=("memory",), limits=LIMITS)
    code = run_session(
        list(CELLS.values()),
        session,
        refused={},
        command="test",
        server=server,
        fingerprint=fingerprint,
        tracker=NotingTracker(),
        report=None,
        measure=MEASURE,
    )
    return code, RecordStore(runs / "night"), runs


@pytest.fixture
def ended(outcome):
    """The record and the log of a scenario."""
    _, store, _ = outcome

    def of(name):
        key = RecordKey(CELLS[name].id, "memory", 0)
        record = store.read(key)
        assert record is not None, f"{name} left no valid record"
        validate(record)
        return record, store.log_path(key).read_text()

    return of


@pytest.mark.parametrize(
    ("scenario", "status", "kind", "message"),
    [
        ("unsupported", "unsupported", "MatchedNothing", r"no module is called nope"),
        ("value_error", "crash", "ValueError", r"the figures do not add up"),
        ("inside_torch", "crash", "RuntimeError", r"mat1 and mat2 shapes"),
        ("system_exit", "crash", "SystemExit", r"left early"),
        ("wrong", "wrong", "Parity", r"gradients differ"),
        ("nan", "crash", "InvalidRecord", r"peak_bytes is nan"),
        ("unstorable", "crash", "InvalidRecord", r"not JSON serializable"),
        ("incomplete", "crash", "InvalidRecord", r"ok without the figures peak_bytes"),
        ("abort", "crash", "SIGABRT", r"died of SIGABRT"),
        (
            "kill_itself",
            "crash",
            "SIGKILL",
            r"died of SIGKILL: killed from outside, perhaps by",
        ),
        ("exit_silently", "crash", "ExitWithoutRecord", r"exited with code 7 .*last words on stdout"),
        ("exit_for_memory", "oom", "ExitWithoutRecord", r"out of host memory; .*bad_alloc"),
        ("host_oom", "oom", "MemoryError", r"out of host memory"),
        ("tensor_oom", "oom", "RuntimeError", r"out of host memory asking for 1099511627776 bytes: "),
        (
            "device_oom",
            "oom",
            "OutOfMemoryError",
            r"out of device memory asking for 20.00 GiB: CUDA",
        ),
        ("hang", "timeout", "Timeout", r"not done after 2 s"),
        ("hang_stubbornly", "timeout", "Timeout", r"not done after 2 s"),
    ],
)
def test_an_end_becomes_a_status_with_its_reason(ended, scenario, status, kind, message):
    record, _ = ended(scenario)
    assert (record.status, record.error["type"]) == (status, kind)
    assert re.search(message, record.error["message"]), record.error["message"]


@pytest.mark.parametrize(
    ("scenario", "where"),
    [
        ("value_error", r"child_scenarios\.py:\d+ in value_error"),
        ("inside_torch", r"torch/nn/\S+\.py:\d+ in \w+"),
        ("abort", r"child_scenarios\.py:\d+ in abort"),
        ("hang", r"child_scenarios\.py:\d+ in hang"),
    ],
)
def test_the_record_names_the_line(ended, scenario, where):
    record, _ = ended(scenario)
    assert re.fullmatch(where, record.error["where"]), record.error["where"]


def test_the_log_has_the_traceback(ended):
    _, log = ended("value_error")
    assert "Traceback (most recent call last)" in log
    assert "ValueError: the figures do not add up" in log


def test_ok_is_recorded_with_its_circumstances(ended, fingerprint):
    record, _ = ended("ok")
    assert record.status == "ok"
    assert record.fingerprint == fingerprint
    assert record.protocol["threads"] == 1
    assert record.protocol["host_memory_bytes"] == 8 * 2**30
    assert record.protocol["trainer"]["steps"] == 5
    assert len(record.code["source_digest"]) == 64
    assert record.wall_s > 0
    assert record.config == CELLS["ok"].resolved


def test_a_child_is_its_own_and_sees_what_it_should(ended):
    record, log = ended("look_around")
    seen = record.detail
    assert seen["group"] == seen["session"] == seen["pid"]
    assert (seen["threads"], seen["omp"]) == (1, "1")
    assert seen["spin"] == record.protocol["openmp_waiting"].get("GOMP_SPINCOUNT")
    assert seen["preload"], "the server did not preload: every child would import torch anew"
    assert seen["sigint"]
    assert seen["lease"] is None
    assert log == "hello from the child\nand from below Python\n"


@pytest.mark.parametrize(
    ("scenario", "file"),
    [("hang", "grandchild.txt"), ("leave_a_grandchild", "left.txt")],
)
def test_what_a_child_started_ends_with_it(outcome, ended, scenario, file):
    _, _, runs = outcome
    ended(scenario)
    assert gone(int((runs / file).read_text()))


def test_a_session_with_crashes_exits_with_5(outcome):
    assert outcome[0] == 5


def gone(pid: int, within_s: float = 5.0) -> bool:
    """Whether the process has ended; a zombie whose parent has not looked yet counts as ended."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False

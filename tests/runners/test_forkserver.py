import os
import subprocess
import sys
from pathlib import Path

import pytest

import suite
from runners.threads import cores, openmp_waiting, server_environment
from suite.errors import UsageError


def test_a_question_is_answered_as_json(server):
    answer = server.ask("child_scenarios:echo", 1, "two", [3])
    assert answer["arguments"] == [1, "two", [3]]


def test_the_server_has_no_thread_that_a_fork_would_lose(server):
    assert server.ask("child_scenarios:echo")["threads"] == 1


def test_an_error_in_the_child_is_raised_here(server):
    with pytest.raises(RuntimeError, match=r"^child_scenarios:fail: LookupError: nothing there$"):
        server.ask("child_scenarios:fail", "nothing there")


def test_a_child_without_an_answer_says_how_it_ended(server):
    with pytest.raises(RuntimeError, match=r"^child_scenarios:vanish: exit code 3; gone$"):
        server.ask("child_scenarios:vanish")


def test_a_child_that_takes_too_long_is_killed(server):
    with pytest.raises(RuntimeError, match=r"no answer after 0\.3 s"):
        server.ask("time:sleep", 60, timeout_s=0.3)


def test_an_absent_device_is_a_usage_error(server):
    with pytest.raises(UsageError, match=r"^device\.type=nonesuch: this machine has .*cpu"):
        server.probe("nonesuch")


def test_a_stopped_server_is_gone_and_can_be_started_again():
    code = (
        "import os; from pathlib import Path; from runners.forkserver import ForkServer\n"
        "server = ForkServer(preload=['torch'])\n"
        "def ask(): return server.ask('os:getppid')\n"
        "first = ask(); server.stop()\n"
        "assert not Path(f'/proc/{first}').exists()\n"
        "server.stop()\n"
        "assert ask() not in (first, os.getpid())\n"
    )
    assert run_python(code) == (0, "")


def test_the_environment_of_the_parent_is_left_alone(server, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = dict(os.environ)
    server.start()
    assert dict(os.environ) == before
    assert cores() >= 1


def test_the_parent_never_imports_torch():
    code = (
        "import sys, runners.session, runners.plan, suite.measure.code_version, suite.measure.fingerprint\n"
        "sys.exit([m for m in ('torch', 'lightning', 'rich', 'pynvml', 'psutil') if m in sys.modules] or 0)"
    )
    assert run_python(code) == (0, "")


def run_python(code):
    """Exit code and standard error of an interpreter of its own."""
    root = str(Path(suite.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_threads_spin_briefly_unless_the_user_says_otherwise(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    assert openmp_waiting() == {"GOMP_SPINCOUNT": "3000"}
    assert server_environment(3)["GOMP_SPINCOUNT"] == "3000"
    assert server_environment(3)["OMP_NUM_THREADS"] == "3"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert openmp_waiting() == {"OMP_WAIT_POLICY": "ACTIVE"}
    assert "GOMP_SPINCOUNT" not in server_environment(3)

"""The client of predictor processes: order, deaths, hangs and nonsense."""

import sys
from pathlib import Path

import pytest

from analysis.predictor import Predictors, one_by_one
from suite.errors import UsageError

FAKE = (sys.executable, "-u", str(Path(__file__).with_name("fake_predictor.py")))


def asked(behaviour, length=1):
    return {"config": {"seq_len": length}, "hardware": behaviour, "assumptions": {}}


def answers(requests, jobs=2, **more):
    with Predictors(jobs, FAKE, **more) as predictors:
        return dict(predictors(requests))


def test_every_answer_belongs_to_its_request_however_late():
    requests = [asked("late" if i == 0 else "echo", i) for i in range(20)]
    found = answers(requests, jobs=3)
    assert {i: answer["figures"]["peak_allocated_bytes"] for i, answer in found.items()} == {
        i: i for i in range(20)
    }


def test_a_child_that_dies_costs_one_answer_and_says_its_last_words():
    found = answers([asked("echo", 5), asked("die"), asked("echo", 7)], jobs=1)
    assert found[1] == {"error": "predictor ended with code 1: MemoryError: no room for the trace"}
    assert found[2]["figures"] == {"peak_allocated_bytes": 7}


def test_deaths_in_a_row_cost_no_other_answer_once_there_was_one():
    found = answers([asked("echo", 1), *[asked("die")] * 5, asked("echo", 9)], jobs=1)
    assert sum("error" in answer for answer in found.values()) == 5
    assert found[6]["figures"] == {"peak_allocated_bytes": 9}


def test_a_child_that_hangs_is_ended():
    found = answers([asked("hang"), asked("echo", 7)], jobs=1, timeout_s=0.5)
    assert found[0] == {"error": "predictor: no answer in 0.5 s"}
    assert found[1]["figures"] == {"peak_allocated_bytes": 7}


def test_words_that_are_no_answer_are_an_error():
    assert answers([asked("words")], jobs=1) == {0: {"error": "no JSON: a warning that went to stdout"}}


def test_a_predictor_that_never_answers_is_said_at_once():
    with (
        Predictors(1, (sys.executable, "-m", "no_such_module_here")) as predictors,
        pytest.raises(UsageError, match=r"ended with code 1: .*No module named"),
    ):
        list(predictors([asked("echo")] * 50))


def test_a_command_that_does_not_exist_is_bad_input():
    with Predictors(1, ("/no/such/program",)) as predictors, pytest.raises(UsageError, match="cannot be"):
        list(predictors([asked("echo")]))


def test_leaving_early_ends_the_children():
    with Predictors(2, FAKE) as predictors:
        next(iter(predictors([asked("echo", 1)] + [asked("late")] * 50)))
        children = [child._process for child in predictors._children if child._process]
    assert children
    assert all(process.poll() is not None for process in children)


def test_no_requests_start_nothing():
    assert answers([]) == {}


def test_a_function_of_one_answers_many():
    assert list(one_by_one(lambda r: {"got": r["n"]})([{"n": 1}, {"n": 2}])) == [
        (0, {"got": 1}),
        (1, {"got": 2}),
    ]

import json

from runners import where


def raised(action):
    try:
        action()
    except json.JSONDecodeError as problem:
        return where.of_traceback(problem.__traceback__)
    raise AssertionError("nothing was raised")


def test_the_innermost_line_of_ours_is_named_without_the_machine_s_paths():
    place = raised(lambda: json.loads("{"))
    assert place.startswith("test_where.py:")
    assert place.endswith(" in <lambda>")


def test_a_fault_log_names_the_thread_that_was_hit():
    log = (
        "Fatal Python error: Aborted\n\n"
        "Thread 0x01 (most recent call first):\n"
        '  File "/elsewhere/waiting.py", line 5 in wait\n\n'
        "Current thread 0x02 (most recent call first):\n"
        f'  File "{json.__file__}", line 3 in loads\n'
        f'  File "{__file__}", line 41 in work\n'
        '  File "/elsewhere/outer.py", line 9 in main\n'
    )
    assert where.of_fault_log(log) == "test_where.py:41 in work"


def test_nothing_is_made_up():
    assert where.of_traceback(None) == ""
    assert where.of_fault_log("no trace here\n") == ""

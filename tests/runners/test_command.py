import os
import sys

from runners.command import _wrapped

SENTENCE = (
    "At 1,024 tokens the cheapest policy that fits 160 MiB is segments(n=sqrt): peak 127 MiB, step-time"
)


def test_the_answer_is_broken_between_words_on_a_terminal_only(monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((40, 24)))
    assert _wrapped(SENTENCE) == SENTENCE
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    lines = _wrapped(SENTENCE).splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(lines).split() == SENTENCE.split()

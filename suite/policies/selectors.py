"""The grammar that names blocks of a model: ``first-5,last-2,range-8-20,middle-4,every-2,0,8-30``.

The words and their meaning are llm-foundry's (``range-i-j`` is half open), plus ``every-n``, plain indices
and ``i-j``, which includes both. Pure functions: no torch.
"""

import re

from suite.errors import MatchedNothing, UsageError

GRAMMAR = (
    "first-N, last-N, middle-N, range-I-J (J excluded), every-N, I-J (J included) or block indices, "
    "joined by commas"
)
_TERM = re.compile(r"(first|last|middle|every)-(\d+)|range-(\d+)-(\d+)|(\d+)(?:-(\d+))?")


def check_selector(text: str, key: str) -> None:
    """Raise UsageError if ``text`` is not in the grammar; ``key`` is named in the message."""
    for term in _terms(text):
        match = _TERM.fullmatch(term)
        if match is None or term.startswith("every-0"):
            raise UsageError(key, text, f"{term!r} is not in the grammar: {GRAMMAR}")


def select_blocks(text: str, depth: int, key: str) -> list[int]:
    """Sorted indices of the selected blocks of a trunk of ``depth`` blocks.

    ``first``, ``last`` and ``middle`` take what there is when N exceeds the depth, as llm-foundry does.
    Raises UsageError outside the grammar, MatchedNothing if nothing, or an index beyond the depth, is
    selected.
    """
    check_selector(text, key)
    chosen: set[int] = set()
    for term in _terms(text):
        indices = _indices(term, depth)
        if not indices or indices[-1] >= depth:
            what = f"names block {indices[-1]}" if indices else "matches no block"
            raise MatchedNothing(f"{key}={text}: {term} {what}; the model has blocks 0 to {depth - 1}")
        chosen.update(indices)
    return sorted(chosen)


def _terms(text: str) -> list[str]:
    return [term.strip() for term in text.split(",")]


def _indices(term: str, depth: int) -> list[int]:
    match = _TERM.fullmatch(term)
    assert match is not None
    word, count, start, stop, index, end = match.groups()
    if index is not None:
        return list(range(int(index), int(end or index) + 1))
    if start is not None:
        return list(range(int(start), int(stop)))
    n = int(count)
    if word == "every":
        return list(range(0, depth, n))
    n = min(n, depth)
    first = {"first": 0, "last": depth - n, "middle": (depth - n) // 2}[word]
    return list(range(first, first + n))

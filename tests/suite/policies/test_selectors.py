"""The grammar that names blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.errors import MatchedNothing, UsageError
from suite.policies.selectors import check_selector, select_blocks

CASES = [
    ("first-2", 8, [0, 1]),
    ("last-3", 8, [5, 6, 7]),
    ("middle-2", 8, [3, 4]),
    ("middle-3", 8, [2, 3, 4]),
    ("range-2-5", 8, [2, 3, 4]),
    ("every-3", 8, [0, 3, 6]),
    ("0,7,3", 8, [0, 3, 7]),
    ("first-2, last-1 ,first-1", 8, [0, 1, 7]),
    ("first-99", 4, [0, 1, 2, 3]),
    ("2-4,7", 8, [2, 3, 4, 7]),
    ("3-3", 8, [3]),
]


@pytest.mark.parametrize(("text", "depth", "expected"), CASES)
def test_selects(text: str, depth: int, expected: list[int]) -> None:
    assert select_blocks(text, depth, "policy.select") == expected


@pytest.mark.parametrize("text", ["", "first", "first-", "frist-2", "every-0", "range-3", "-1", "1,,2"])
def test_refuses_what_is_not_in_the_grammar(text: str) -> None:
    with pytest.raises(UsageError, match=r"policy\.select=.*grammar"):
        check_selector(text, "policy.select")


@pytest.mark.parametrize("text", ["8", "range-6-9", "range-3-3", "first-0", "0,12", "6-8", "4-3"])
def test_refuses_blocks_that_do_not_exist(text: str) -> None:
    with pytest.raises(MatchedNothing, match="blocks 0 to 7"):
        select_blocks(text, 8, "policy.select")


def test_the_message_says_what_is_beyond_the_model() -> None:
    with pytest.raises(MatchedNothing, match=r"range-0-99 names block 98; the model has blocks 0 to 3$"):
        select_blocks("first-1,range-0-99", 4, "policy.select")
    with pytest.raises(MatchedNothing, match=r"range-3-3 matches no block"):
        select_blocks("range-3-3", 4, "policy.select")


@given(depth=st.integers(1, 60), n=st.integers(1, 80))
def test_first_and_last_take_at_most_what_there_is(depth: int, n: int) -> None:
    count = min(n, depth)
    assert select_blocks(f"first-{n}", depth, "k") == list(range(count))
    assert select_blocks(f"last-{n}", depth, "k") == list(range(depth - count, depth))
    assert len(select_blocks(f"middle-{n}", depth, "k")) == count

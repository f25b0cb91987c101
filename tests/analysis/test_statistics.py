"""Spread, frontier and overlap."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.statistics import overlap, pareto_front, spread_of
from suite.paired import PairedRatio


def test_intervals_overlap_unless_both_are_known_and_apart():
    low, middle, high = (PairedRatio(e, e - 0.02, e + 0.02, 5) for e in (1.0, 1.03, 1.1))
    assert overlap(low, middle)
    assert overlap(high, PairedRatio(1.0, None, None, 1))
    assert not overlap(low, high)
    assert not overlap(high, low)


def test_spread_needs_two_values():
    assert spread_of([0.0]) is None
    assert spread_of([0.0, 0.2]) == pytest.approx(math.sqrt(0.02))


points = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12)


def beats(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[0] and a[1] <= b[1] and a != b


@given(points)
def test_the_frontier_is_every_point_that_none_beats(found):
    front = pareto_front([(float(x), float(y)) for x, y in found])
    assert set(front) == {i for i, p in enumerate(found) if not any(beats(q, p) for q in found)}
    assert [found[i][0] for i in front] == sorted(found[i][0] for i in front)

"""The search against brute force, over needs that grow, jump, stand still and turn."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from analysis.fit.point import FITS, OVER, REFUSED, Point
from analysis.fit.search import search


def run(needs, limit, *, start, step, most, refused=()):
    """The end of a search and the values it asked, where ``needs(value)`` bytes are needed."""

    def point(value):
        if value in refused:
            return Point(value, REFUSED, reason="cannot be")
        spare = limit - needs(value)
        return Point(value, FITS if spare >= 0 else OVER, spare)

    running, asked = search(start, step, most), []
    value = next(running)
    while True:
        asked.append(value)
        try:
            value = running.send(point(value))
        except StopIteration as end:
            return end.value, asked


@given(
    increments=st.lists(st.integers(0, 50), min_size=1, max_size=200),
    limit=st.integers(0, 3000),
    step=st.sampled_from([1, 2, 128]),
    data=st.data(),
)
def test_what_grows_is_searched_as_by_brute_force(increments, limit, step, data):
    totals = [sum(increments[: i + 1]) for i in range(len(increments))]
    most = step * len(totals)
    start = step * data.draw(st.integers(1, len(totals)))
    found, asked = run(lambda v: totals[v // step - 1], limit, start=start, step=step, most=most)
    fitting = [step * (i + 1) for i, total in enumerate(totals) if total <= limit]
    assert (found.best.value if found.best else None) == (fitting[-1] if fitting else None)
    assert len(asked) == len(set(asked))
    assert all(step <= value <= most and value % step == 0 for value in asked)
    assert found.turned == ()
    if fitting and fitting[-1] < most:
        assert found.beyond.value == fitting[-1] + step


@given(
    needs=st.lists(st.integers(0, 100), min_size=1, max_size=60), limit=st.integers(0, 100), data=st.data()
)
def test_what_turns_ends_below_the_first_asked_that_does_not_fit(needs, limit, data):
    start = data.draw(st.integers(1, len(needs)))
    found, asked = run(lambda v: needs[v - 1], limit, start=start, step=1, most=len(needs))
    bad = [value for value in asked if needs[value - 1] > limit]
    if found.best is None:
        assert needs[0] > limit
        return
    assert all(needs[value - 1] <= limit for value in asked if value <= found.best.value)
    assert (found.beyond.value if bad else None) == (found.best.value + 1 if bad else None)
    known = sorted(asked)
    turned = [(a, b) for a, b in pairwise(known) if needs[a - 1] > needs[b - 1]]
    assert list(found.turned) == turned


def test_a_dip_beyond_the_first_that_does_not_fit_is_no_answer_and_is_said():
    # 6 is never asked: all that is known grows.
    found, _ = run(lambda v: 100 if v == 6 else v, 50, start=1, step=1, most=64)
    assert (found.best.value, found.turned) == (50, ())
    found, _ = run(lambda v: 100 if v == 8 else v, 50, start=1, step=1, most=64)
    assert found.best.value == 7
    assert found.turned == ()
    # The start does not fit, and the smallest value needs more than one between them.
    found, _ = run(lambda v: 40 if v == 1 else v, 50, start=64, step=1, most=64)
    assert (found.best.value, found.turned) == (50, ((1, 27),))
    found, _ = run(lambda v: 45 if v == 4 else v, 50, start=4, step=1, most=16)
    assert (found.best.value, found.turned) == (16, ((4, 8),))


def test_a_line_takes_few_points():
    found, asked = run(lambda v: 10_000 + 37 * v, 2_000_000, start=8192, step=128, most=1 << 22)
    assert found.best.value == (2_000_000 - 10_000) // 37 // 128 * 128
    assert len(asked) <= 7


def test_a_cliff_takes_no_more_than_a_few_bisections():
    found, asked = run(lambda v: 0 if v < 77_777 else 10**15, 10, start=1, step=1, most=1 << 22)
    assert found.best.value == 77_776
    assert len(asked) <= 18 + 3 * 17


def test_the_bound_ends_the_doubling():
    found, asked = run(lambda v: v, 10**9, start=3, step=1, most=20)
    assert (found.best.value, found.beyond) == (20, None)
    assert asked == [3, 6, 12, 20]


def test_nothing_fits_takes_two_points():
    found, asked = run(lambda v: 100, 10, start=512, step=128, most=1024)
    assert (found.best, found.beyond.value, asked) == (None, 128, [512, 128])


def test_a_refused_start_ends_it_and_a_refused_value_bounds_it():
    found, asked = run(lambda v: v, 10, start=4, step=1, most=64, refused={4})
    assert (found.refused, asked) == ("cannot be", [4])
    found, _ = run(lambda v: v, 100, start=4, step=1, most=64, refused=set(range(11, 65)))
    assert (found.best.value, found.beyond.value, found.beyond.reason) == (10, 11, "cannot be")

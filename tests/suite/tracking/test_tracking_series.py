from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tracking_builders import live_bytes

from suite.tracking.series import thin


def test_a_short_series_is_left_as_it_is() -> None:
    series = live_bytes(10**6, events=100)
    assert thin(series, 100) == series
    assert thin([], 100) == []


def test_both_sides_of_every_change_of_phase_and_the_peak_stay() -> None:
    series = live_bytes(10**6, events=2000)
    kept = thin(series, 60)
    assert len(kept) <= 60
    # forward ends with 999, the loss with 1019, the backward with 1949.
    assert {0, 999, 1000, 1019, 1020, 1949, 1950, 1999} <= {index for index, _, _ in kept}
    assert max(live for _, live, _ in kept) == 10**6


_EVENTS = st.lists(st.tuples(st.integers(0, 2**40), st.sampled_from("fb")), min_size=1, max_size=300)


@given(_EVENTS, st.integers(2, 80))
def test_what_is_kept_is_an_ordered_part_with_the_same_extremes_and_phases(
    events: list[tuple[int, str]], most: int
) -> None:
    series = [(index, live, phase) for index, (live, phase) in enumerate(events)]
    kept = thin(series, most)
    assert kept == [event for event in series if event in set(kept)]
    assert {kept[0], kept[-1]} == {series[0], series[-1]}
    assert max(live for _, live, _ in kept) == max(live for _, live, _ in series)
    changes = [a != b for (_, _, a), (_, _, b) in pairwise(series)]
    shown = [a != b for (_, _, a), (_, _, b) in pairwise(kept)]
    assert sum(shown) == sum(changes)
    assert len(kept) <= max(most, 3 + 2 * sum(changes))

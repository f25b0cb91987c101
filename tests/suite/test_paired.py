"""The paired ratio: what must hold for any rounds, and the interval against scipy's own."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_cases import FIGURES, record
from scipy import stats

from suite.paired import PairedRatio, comparable, paired_ratio, show_change, step_time_ratio
from suite.summary import summarise

seconds = st.floats(min_value=1e-4, max_value=1e4)
rounds = st.lists(st.tuples(seconds, seconds), min_size=2, max_size=12)
factor = st.floats(min_value=1e-3, max_value=1e3)


def arms(pairs: list[tuple[float, float]]) -> tuple[dict[int, float], dict[int, float]]:
    return {i: a for i, (a, _) in enumerate(pairs)}, {i: b for i, (_, b) in enumerate(pairs)}


def close(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and math.isclose(a, b, rel_tol=1e-6)


def ratio_of(candidate: dict[int, float], reference: dict[int, float]) -> PairedRatio:
    found = paired_ratio(candidate, reference)
    assert found is not None
    return found


@given(rounds, factor)
def test_the_unit_of_time_does_not_matter(pairs, scale):
    candidate, reference = arms(pairs)
    plain = ratio_of(candidate, reference)
    scaled = ratio_of(
        {r: s * scale for r, s in candidate.items()}, {r: s * scale for r, s in reference.items()}
    )
    assert close(plain.estimate, scaled.estimate)
    assert close(plain.low, scaled.low)
    assert close(plain.high, scaled.high)


@given(rounds, factor)
def test_a_slower_candidate_scales_estimate_and_bounds(pairs, scale):
    candidate, reference = arms(pairs)
    plain = ratio_of(candidate, reference)
    slower = ratio_of({r: s * scale for r, s in candidate.items()}, reference)
    assert close(slower.estimate, plain.estimate * scale)
    assert close(slower.low, plain.low * scale)
    assert close(slower.high, plain.high * scale)


@given(rounds)
def test_a_cell_against_itself_is_exactly_one(pairs):
    candidate, _ = arms(pairs)
    assert paired_ratio(candidate, candidate) == PairedRatio(1.0, 1.0, 1.0, len(pairs))


@given(rounds)
def test_the_interval_holds_the_estimate(pairs):
    found = ratio_of(*arms(pairs))
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.estimate * (1 + 1e-12)
    assert found.estimate <= found.high * (1 + 1e-12)


@given(st.lists(st.tuples(seconds, seconds, factor), min_size=2, max_size=12))
def test_a_drift_common_to_both_arms_cancels(triples):
    candidate, reference = arms([(a, b) for a, b, _ in triples])
    drift = dict(enumerate(d for _, _, d in triples))
    drifted = ratio_of(
        {r: s * drift[r] for r, s in candidate.items()}, {r: s * drift[r] for r, s in reference.items()}
    )
    plain = ratio_of(candidate, reference)
    assert close(plain.estimate, drifted.estimate)
    assert close(plain.low, drifted.low)
    assert close(plain.high, drifted.high)


@given(rounds)
def test_swapping_the_arms_inverts_the_ratio(pairs):
    candidate, reference = arms(pairs)
    there, back = ratio_of(candidate, reference), ratio_of(reference, candidate)
    assert close(there.estimate, 1 / back.estimate)
    assert back.high is not None
    assert close(there.low, 1 / back.high)


def test_the_interval_is_scipys_paired_t_interval():
    candidate = {0: 1.10, 1: 1.21, 2: 0.99, 3: 1.05}
    reference = {0: 1.00, 1: 1.10, 2: 0.95, 3: 0.97}
    logs = [math.log(candidate[r]) for r in range(4)], [math.log(reference[r]) for r in range(4)]
    expected = stats.ttest_rel(*logs).confidence_interval(0.95)
    found = ratio_of(candidate, reference)
    assert found.low == pytest.approx(math.exp(expected.low), rel=1e-12)
    assert found.high == pytest.approx(math.exp(expected.high), rel=1e-12)


def test_only_rounds_that_both_have_are_paired():
    found = ratio_of({0: 2.0, 1: 3.0, 7: 900.0}, {0: 1.0, 1: 1.5, 5: 0.001})
    assert (found.estimate, found.rounds) == (pytest.approx(2.0), 2)
    assert paired_ratio({0: 1.0}, {1: 1.0}) is None


def test_one_round_has_no_interval_and_says_so():
    found = ratio_of({3: 1.072}, {3: 1.0})
    assert (found.low, found.high) == (None, None)
    assert found.text == "+7.2 % (1 round: no interval)"


def test_changes_read_as_people_write_them():
    assert PairedRatio(1.0722, 1.0589, 1.0854, 5).text == "+7.2 % [5.9, 8.5]"
    assert (
        PairedRatio(0.975, 0.96, 0.99, 5).text
        == "\N{MINUS SIGN}2.5 % [\N{MINUS SIGN}4.0, \N{MINUS SIGN}1.0]"
    )
    assert show_change(0.9999) == "+0.0 %"


def summary_of(rounds):
    """``rounds``: (session, round, seconds)."""
    records = [
        record(
            "time",
            round_=r,
            detail={"session": s} if s else {},
            figures=FIGURES["time"] | {"step_time_s": t},
        )
        for s, r, t in rounds
    ]
    (found,) = summarise(records, budget_bytes=None).values()
    return found


def test_only_rounds_of_one_session_are_pairs():
    reference = summary_of([("monday", 0, 1.0), ("monday", 1, 1.0), ("friday", 2, 9.0)])
    later = summary_of([("friday", 0, 20.0), ("friday", 1, 20.0), ("friday", 2, 18.0)])
    found = step_time_ratio(later, reference)
    assert found is not None
    assert (found.estimate, found.rounds) == (pytest.approx(2.0), 1)
    assert comparable(later, reference)
    apart = summary_of([("friday", 0, 20.0), ("friday", 1, 20.0)])
    assert step_time_ratio(apart, reference) is None
    assert not comparable(apart, reference)


def test_rounds_that_do_not_say_their_session_pair_only_among_themselves():
    mute, told = summary_of([("", 0, 1.0)]), summary_of([("monday", 0, 3.0)])
    assert step_time_ratio(mute, told) is None
    assert step_time_ratio(mute, mute) == PairedRatio(1.0, None, None, 1)

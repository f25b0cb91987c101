"""Bytes, counts and seconds as people write and read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.errors import UsageError
from suite.units import parse_bytes, show_apart, show_bytes, show_count, show_seconds

WRITTEN = [
    ("24GiB", 24 * 2**30),
    ("1.5 GB", 1_500_000_000),
    ("512mib", 2**29),
    ("80GB", 80 * 10**9),
    (1024, 1024),
    ("7", 7),
    ("2 TiB", 2**41),
]


@pytest.mark.parametrize(("text", "expected"), WRITTEN)
def test_bytes_are_read(text: str | int, expected: int) -> None:
    assert parse_bytes(text, "budget") == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "1,5GiB", "24 gigs", "1e9", "nan"])
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match="budget="):
        parse_bytes(text, "budget")


@given(st.integers(0, 2**60))
def test_what_is_shown_can_be_read_again_to_three_digits(count: int) -> None:
    shown = show_bytes(count).replace(",", "")
    assert parse_bytes(shown, "k") == pytest.approx(count, rel=0.06, abs=1)


def test_shown_to_a_person() -> None:
    assert show_bytes(None) == show_count(None) == show_seconds(None) == "-"
    assert show_bytes(0) == "0 B"
    assert show_bytes(1536) == "1.5 KiB"
    assert show_bytes(-(2**20)) == "-1.0 MiB"
    assert show_count(1_250_000_000) == "1.25 G"
    assert show_count(12) == "12"
    assert show_seconds(0.0123) == "12.3 ms"
    assert show_seconds(5e-6) == "5 us"
    assert show_seconds(75.2) == "75.2 s"
    assert show_seconds(130) == "2 min 10 s"
    assert show_seconds(7320) == "2 h 02 min"


def test_two_counts_are_shown_with_the_digits_that_tell_them_apart() -> None:
    mib = 2**20
    assert show_apart(42.6 * mib, 30 * mib) == ("42.6 MiB", "30.0 MiB")
    assert show_apart(30 * mib + 20_000, 30 * mib) == ("30.02 MiB", "30.00 MiB")
    assert show_apart(30 * mib + 1, 30 * mib) == ("31,457,281 B", "31,457,280 B")
    assert show_apart(30 * mib, 30 * mib) == ("30.0 MiB", "30.0 MiB")
    assert show_apart(216 * mib + 100_000, 216 * mib) == ("216.1 MiB", "216.0 MiB")

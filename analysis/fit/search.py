"""The largest value that fits, from few points: doubling, then interpolation, safe by bisection.

The end is exact: the value fits, and the value one step beyond was asked and does not.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from analysis.fit.point import Point

Search = Generator[int, Point, "Found"]


@dataclass(frozen=True)
class Found:
    """The end of a search.

    Attributes:
        best: the largest that fits, None if not even the smallest does.
        beyond: the value one step beyond it, which does not fit; None if ``best`` is the last one.
        turned: pairs of neighbouring asked values (A, B) with A < B of which A needs more.
        refused: the start was refused: there is nothing to search.
    """

    best: Point | None
    beyond: Point | None
    turned: tuple[tuple[int, int], ...] = ()
    refused: str = ""


def search(start: int, step: int, most: int, known: Sequence[Point] = ()) -> Search:
    """Yields values to ask, gets their points and returns what was found.

    Args:
        start: the first value; ``start`` and ``most`` are multiples of ``step``.
        step: between values.
        most: the largest value.
        known: points that were asked before.

    Where what is needed does not grow with the value, the answer is the largest value below the first
    asked one that does not fit.
    """
    asked = {point.value: point for point in known}
    if start not in asked:
        asked[start] = yield start
    first = asked[start]
    if first.spare_bytes is None:
        return Found(None, None, refused=first.reason)
    while asked[max(asked)].fits and max(asked) < most:
        value = min(most, 2 * max(asked))
        asked[value] = yield value
    if not first.fits and step not in asked:
        asked[step] = yield step
    while True:
        low = max((v for v in asked if _sound(v, asked)), default=None)
        high = min((v for v in asked if not asked[v].fits), default=None)
        if low is None or high is None or high - low <= step:
            break
        yield from _narrow(low, high, step, asked)
    best = None if low is None else asked[low]
    beyond = None if high is None else asked[high]
    return Found(best, beyond, turned_between(asked.values()))


def turned_between(points: Iterable[Point]) -> tuple[tuple[int, int], ...]:
    """Neighbours among the asked values where the smaller value needs more."""
    known = sorted((p for p in points if p.spare_bytes is not None), key=lambda p: p.value)
    pairs = pairwise(known)
    return tuple((a.value, b.value) for a, b in pairs if (b.spare_bytes or 0) > (a.spare_bytes or 0))


def _sound(value: int, asked: dict[int, Point]) -> bool:
    return all(asked[v].fits for v in asked if v <= value)


def _narrow(low: int, high: int, step: int, asked: dict[int, Point]) -> Generator[int, Point, None]:
    """Two interpolated values and, where they do not halve the gap, its middle."""
    width = high - low
    for _ in range(2):
        if high - low <= step:
            return
        value = _guess(asked[low], asked[high], step)
        point = asked[value] = yield value
        low, high = (value, high) if point.fits else (low, value)
    if step < high - low and high - low > width // 2:
        middle = low + (high - low) // step // 2 * step
        asked[middle] = yield middle


def _guess(low: Point, high: Point, step: int) -> int:
    """Where a straight line through both would just fit; strictly between them, on the grid."""
    steps = (high.value - low.value) // step
    if low.spare_bytes is None or high.spare_bytes is None:
        return low.value + steps // 2 * step
    share = low.spare_bytes / (low.spare_bytes - high.spare_bytes)
    return low.value + min(steps - 1, max(1, int(share * steps))) * step

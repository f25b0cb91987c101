"""Thinning a series so that a chart of it keeps its shape."""

from collections.abc import Sequence

# event index, live bytes, phase
Event = tuple[int, int, str]


def thin(series: Sequence[Event], most: int) -> list[Event]:
    """About ``most`` of the events of ``series``, in order, with the same outline.

    Kept in any case: the ends, the first peak, and both sides of every change of phase (more than
    ``most``, if there are that many). The rest is shared by equal stretches of the series, each
    keeping its lowest and its highest event.
    """
    if len(series) <= most:
        return list(series)
    last = len(series) - 1
    kept = {0, last, max(range(len(series)), key=lambda i: series[i][1])}
    for i in range(1, len(series)):
        if series[i][2] != series[i - 1][2]:
            kept |= {i - 1, i}
    stretches = (most - len(kept)) // 2
    for n in range(stretches):
        stretch = range(len(series) * n // stretches, len(series) * (n + 1) // stretches)
        kept.add(min(stretch, key=lambda i: series[i][1]))
        kept.add(max(stretch, key=lambda i: series[i][1]))
    return [series[i] for i in sorted(kept)]

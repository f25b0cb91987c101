"""Bytes and counts, as people write them and as people read them."""

import re

from suite.errors import UsageError

_FACTORS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str | int | float, key: str) -> int:
    """Bytes from ``24GiB``, ``1.5 GB`` or a plain number; ``key`` is named in the error."""
    match = _QUANTITY.fullmatch(str(text))
    factor = _FACTORS.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise UsageError(key, text, "expected bytes, such as 24GiB, 512MiB, 80GB or 1073741824")
    return int(float(match.group(1)) * factor)


def show_apart(a: float, b: float) -> tuple[str, str]:
    """Two counts of bytes with as many digits as it takes to tell them apart, in bytes if need be."""
    for more_digits in range(4):
        shown = show_bytes(a, more_digits), show_bytes(b, more_digits)
        if shown[0] != shown[1] or a == b:
            return shown
    return f"{a:,.0f} B", f"{b:,.0f} B"


def show_bytes(count: float | None, more_digits: int = 0) -> str:
    """``count`` bytes in the largest binary unit that keeps it at least one."""
    if count is None:
        return "-"
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(count) >= factor:
            digits = (1 if count < 100 * factor else 0) + more_digits
            return f"{count / factor:,.{digits}f} {unit}"
    return f"{count:,.0f} B"


def show_count(count: float | None) -> str:
    """A large count with its decimal prefix: ``1.25 G``."""
    if count is None:
        return "-"
    for unit, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f}"


def show_seconds(seconds: float | None) -> str:
    """A duration at a precision a person can use."""
    if seconds is None:
        return "-"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"

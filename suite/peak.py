"""The denominator of MFU and HFU: one per device, precision and sweep.

Where no data sheet states a peak, as on a CPU, each round measures the rate of a matrix product. Those
rates vary with the load of the machine, so a round's own rate would hide a slow step behind a slow
product: of two cells the slower one could show the higher MFU. The best rate that any round of the sweep
measured is what the machine can do, and the denominator of all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from suite.record import Record

# How the source of a rate begins that the round itself measured.
MEASURED = "measured in this round: "


@dataclass(frozen=True)
class PeakRate:
    """``flops_per_s``, and in words where it comes from."""

    flops_per_s: float
    source: str


# Source of the rate and the device it is of.
RateKey = tuple[str, str]


def rate_key(record: Record) -> RateKey:
    """What rounds must have in common to share a denominator."""
    return str(record.detail.get("peak_flops_source", "")), str(record.fingerprint.get("name", ""))


def peak_rates(records: Iterable[Record]) -> Mapping[RateKey, PeakRate]:
    """The denominators of the rounds among ``records``, by :func:`rate_key`."""
    found: dict[RateKey, list[float]] = {}
    for record in records:
        rate = record.figures.get("peak_flops_per_s")
        if rate and (record.pass_, record.status) == ("time", "ok"):
            found.setdefault(rate_key(record), []).append(rate)
    return {key: PeakRate(max(rates), _source(key[0], len(rates))) for key, rates in found.items()}


def _source(source: str, rounds: int) -> str:
    if not source.startswith(MEASURED):
        return source
    return f"the best that {rounds} rounds of this sweep measured: {source.removeprefix(MEASURED)}"

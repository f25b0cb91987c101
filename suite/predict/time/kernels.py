"""The time of one operator on the device: the roofline of Williams et al. 2009 (CACM 52(4)) for each."""

from suite.predict.time.classes import ATTENTION, HOST, class_of, is_exponential
from suite.predict.time.rates import Rates
from suite.predict.trace.step import OperatorRun


def kernel_s(run: OperatorRun, rates: Rates, *, causal: bool) -> float:
    """Seconds of one call: the longer of its arithmetic and its memory traffic, and a fixed part.

    ``causal``: fused attention runs the lower triangle only, while the FLOPs of ``run`` are those of both.
    """
    kind = class_of(run.operator, run.flops)
    if kind == HOST:
        return 0.0
    arithmetic = 0.0
    if run.flops:
        peak = rates.matmul_flops_per_s(run.dtype)
        if kind == ATTENTION:
            backward = run.operator.partition(".")[0].endswith("_backward")
            share = rates.attention_backward_efficiency if backward else rates.attention_forward_efficiency
            executed = run.flops * (rates.causal_share if causal else 1.0)
        else:
            share, executed = rates.matmul_efficiency * _fullness(run.flops, rates), float(run.flops)
        arithmetic = executed / (peak * share)
    nbytes = run.read_bytes + run.written_bytes
    traffic = traffic_s(nbytes, rates, exponential=is_exponential(run.operator))
    if run.phase == "optimizer" and rates.optimizer_bytes_per_s:
        traffic = run.read_bytes / rates.optimizer_bytes_per_s
    return max(arithmetic, traffic) + rates.kernel_overhead_s


def traffic_s(nbytes: float, rates: Rates, *, exponential: bool = False) -> float:
    """Seconds to read and write ``nbytes`` in all.

    What fits in the cache goes at the cache's pace, and what does not at the memory's: the pieces add, so
    that more bytes never take less time.
    """
    memory = rates.bandwidth_bytes_per_s * rates.bandwidth_efficiency
    cached = min(nbytes, rates.cache_bytes) if rates.cache_bandwidth_bytes_per_s else 0.0
    seconds = (nbytes - cached) / memory
    if cached:
        seconds += cached / rates.cache_bandwidth_bytes_per_s
    if exponential and rates.exponential_bytes_per_s:
        return max(seconds, nbytes / rates.exponential_bytes_per_s)
    return seconds


def _fullness(flops: int, rates: Rates) -> float:
    """The share of a large product's rate that one of this size reaches: size / (size + half size)."""
    size: float = (flops / 2) ** (1 / 3)
    return size / (size + rates.matmul_half_size)

"""Measures the rates of the device at hand: seconds of a few kernels, and what the host adds to them.

Everything is short, taken several times in turn with the rest, and the median kept: a neighbour's burst
falls on all and decides none. Under half a minute on two cores.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from suite.config.schema import CellConfig, DataConfig, ModelConfig, OptimizerConfig, PolicyConfig
from suite.predict.time.measured import Steps
from suite.predict.time.rates import Rates
from suite.predict.trace.compose import trace_step
from suite.predict.trace.step import StepTrace

_REPEATS = 9
_LEAST_S = 2e-3
# Tokens, inputs and outputs of a linear layer; the last is large.
_PRODUCTS = ((256, 128, 256), (512, 512, 512), (1024, 1024, 1024))
_ACCELERATOR_PRODUCTS = ((512, 512, 512), (2048, 2048, 2048), (8192, 8192, 8192))
_FP32_BYTES = 4
_CACHED_BYTES = 2**19
_UNCACHED_BYTES = 2**27
_CACHE_BYTES = 2**22


def calibrate(device: str, threads: int) -> Rates:
    """Measure the rates of ``device``, which is torch's name; a CPU's on so many threads.

    Sets torch's number of threads, and puts it back.
    """
    before = torch.get_num_threads()
    if threads:
        torch.set_num_threads(threads)
    try:
        return _calibrate(device, threads or before)
    finally:
        torch.set_num_threads(before)


def _calibrate(device: str, threads: int) -> Rates:
    torch.manual_seed(0)
    kernels = _kernels(device)
    took = _medians({name: run for name, (run, _) in kernels.items()}, device)
    rate = {name: work / took[name] for name, (_, work) in kernels.items()}
    sizes = _products_of(device)
    peaks, half = {}, 0.0
    for precision in ("fp32", "bf16"):
        large, small = (
            statistics.mean(rate[f"{precision} {i} {o}"] for o in _ORIENTATIONS) for i in (-1, 0)
        )
        # size / (size + half) at two sizes gives both unknowns; no slower with size is no size's share.
        n, m = ((a * b * c) ** (1 / 3) for a, b, c in (sizes[-1], sizes[0]))
        found = max(0.0, (large - small) / (small / m - large / n)) if small / m > large / n else 0.0
        peaks[precision] = large * (n + found) / n
        half = found if precision == "fp32" else half
    peak = peaks["fp32" if device == "cpu" else "bf16"]
    overheads = _overheads(device, threads)
    return Rates(
        device=device,
        threads=threads if device == "cpu" else 0,
        asynchronous=device != "cpu",
        matmul_fp32_flops_per_s=peaks["fp32"],
        matmul_bf16_flops_per_s=peaks["bf16"],
        matmul_efficiency=1.0,
        matmul_half_size=half,
        # Counted FLOPs are of the whole square, of which a causal kernel runs half.
        attention_forward_efficiency=min(1.0, rate["attention forward"] / 2 / peak),
        attention_backward_efficiency=min(1.0, rate["attention backward"] / 2 / peak),
        causal_share=0.5,
        bandwidth_bytes_per_s=rate["memory"],
        bandwidth_efficiency=1.0,
        cache_bytes=float(_CACHE_BYTES) if rate["cache"] > rate["memory"] else 0.0,
        cache_bandwidth_bytes_per_s=rate["cache"],
        exponential_bytes_per_s=rate["softmax"],
        optimizer_bytes_per_s=rate["optimizer"],
        kernel_overhead_s=0.0 if device == "cpu" else took["empty"],
        forward_dispatch_s=overheads.forward_dispatch_s,
        backward_dispatch_s=overheads.backward_dispatch_s,
        region_overhead_s=overheads.region_overhead_s,
        selective_dispatch_s=overheads.selective_dispatch_s,
        source=f"measured on this device, {threads} threads, torch {torch.__version__}",
    )


_ORIENTATIONS = ("forward", "inputs", "weights")


def _products_of(device: str) -> tuple[tuple[int, int, int], ...]:
    return _PRODUCTS if device == "cpu" else _ACCELERATOR_PRODUCTS


def _kernels(device: str) -> dict[str, tuple[Callable[[], object], float]]:
    """By name: what to run, and its FLOPs or bytes."""
    found: dict[str, tuple[Callable[[], object], float]] = {}
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        for index, (tokens, inputs, outputs) in enumerate(_products_of(device)):
            if index == 1:
                continue
            x, w = _random(device, dtype, tokens, inputs), _random(device, dtype, outputs, inputs)
            g, flops = _random(device, dtype, tokens, outputs), 2.0 * tokens * inputs * outputs
            place = 0 if index == 0 else -1
            found[f"{precision} {place} forward"] = partial(torch.mm, x, w.t()), flops
            found[f"{precision} {place} inputs"] = partial(torch.mm, g, w), flops
            found[f"{precision} {place} weights"] = partial(torch.mm, g.t(), x), flops
    found |= _attention(device)
    small, large = (
        _random(device, torch.float32, n // _FP32_BYTES) for n in (_CACHED_BYTES, _UNCACHED_BYTES)
    )
    outs = torch.empty_like(small), torch.empty_like(large)
    found["cache"] = (lambda: torch.add(small, small, out=outs[0])), 2.0 * _CACHED_BYTES
    found["memory"] = (lambda: torch.add(large, large, out=outs[1])), 2.0 * _UNCACHED_BYTES
    scores = _random(device, torch.float32, 4, 512, 512)
    found["softmax"] = (lambda: scores.softmax(-1)), 2.0 * scores.numel() * _FP32_BYTES
    weights = [torch.nn.Parameter(_random(device, torch.float32, 512, 512)) for _ in range(8)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.AdamW(weights, fused=True)
    # Parameter, gradient and both moments are read.
    found["optimizer"] = optimizer.step, 4.0 * 8 * 512 * 512 * _FP32_BYTES
    one = _random(device, torch.float32, 1)
    found["empty"] = (lambda: one.add_(1)), 1.0
    return found


def _attention(device: str) -> dict[str, tuple[Callable[[], object], float]]:
    heads, length, width = (4, 512, 64) if device == "cpu" else (32, 4096, 128)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    q, k, v = (_random(device, dtype, 1, heads, length, width).requires_grad_() for _ in range(3))
    product = 2.0 * heads * length * length * width
    g = torch.ones_like(q)

    def forward() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    kept = forward()

    def backward() -> object:
        return torch.autograd.grad(kept, (q, k, v), g, retain_graph=True)

    return {"attention forward": (forward, 2 * product), "attention backward": (backward, 5 * product)}


def _random(device: str, dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(shape, device=device).to(dtype)


def _medians(runs: Mapping[str, Callable[[], object]], device: str) -> dict[str, float]:
    """Median seconds of a call of each, all in turn; short ones several times at once."""
    often = {}
    for name, run in runs.items():
        run()
        often[name] = max(1, int(_LEAST_S / _seconds(run, 1, device)))
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(_REPEATS):
        for name, run in runs.items():
            found[name].append(_seconds(run, often[name], device))
    return {name: statistics.median(took) for name, took in found.items()}


def _seconds(run: Callable[[], object], times: int, device: str) -> float:
    start = time.perf_counter()
    for _ in range(times):
        run()
    if device != "cpu":
        torch.accelerator.synchronize()
    return (time.perf_counter() - start) / times


def _tiny(device: str, threads: int, policy: PolicyConfig) -> CellConfig:
    """A model whose kernels take next to no time, so that a step is what the host does."""
    model = ModelConfig("tiny", "llama", 64, 4, 32, 2, 1, 64, 64)
    return CellConfig(
        model=model,
        policy=policy,
        seq_len=16,
        batch_size=1,
        precision="fp32",
        attention="sdpa",
        compile="none",
        optimizer=OptimizerConfig(impl="fused"),
        data=DataConfig(),
        device=device,
        threads=threads,
        seed=0,
    )


@dataclass(frozen=True)
class _Overheads:
    forward_dispatch_s: float
    backward_dispatch_s: float
    region_overhead_s: float
    selective_dispatch_s: float


def _overheads(device: str, threads: int) -> _Overheads:
    """What the host takes: of an operator, a region, and an operator under selective checkpointing."""
    policies = {
        "none": PolicyConfig("none"),
        "full": PolicyConfig("full"),
        "selective": PolicyConfig("ops", {"save": "attn"}),
    }
    configs = {name: _tiny(device, threads, policy) for name, policy in policies.items()}
    with torch.random.fork_rng():
        steps = {name: Steps(config) for name, config in configs.items()}
        phases: dict[str, dict[str, list[float]]] = {name: {} for name in steps}
        for repeat in range(4 * _REPEATS):
            for name, subject in steps.items():
                for phase, seconds in subject.timed().items():
                    if repeat >= 2:
                        phases[name].setdefault(phase, []).append(seconds)
    # A CPU's traces stand for those of any device here: how many operators there are is alike.
    traces = {name: trace_step(replace(config, device="cpu")) for name, config in configs.items()}
    took = {n: {p: statistics.median(t) for p, t in found.items()} for n, found in phases.items()}
    both = {name: sum(found[p] for p in ("forward", "loss", "backward")) for name, found in took.items()}
    forwards = _count(traces["none"], "forward", "loss")
    forward = (took["none"]["forward"] + took["none"]["loss"]) / forwards
    replayed = _replayed(traces["full"])
    region = (both["full"] - both["none"] - replayed * forward) / len(traces["full"].regions)
    inside = sum(
        calls
        for run, calls in traces["selective"].operators.items()
        if run.phase == "forward" and run.module.startswith("blocks.")
    )
    spared = (replayed - _replayed(traces["selective"])) * forward
    selective = (both["selective"] - both["full"] + spared) / (2 * inside)
    return _Overheads(
        forward_dispatch_s=forward,
        backward_dispatch_s=took["none"]["backward"] / _count(traces["none"], "backward"),
        region_overhead_s=max(0.0, region),
        selective_dispatch_s=max(0.0, selective),
    )


def _count(trace: StepTrace, *phases: str) -> int:
    return sum(calls for run, calls in trace.operators.items() if run.phase in phases and not run.replay)


def _replayed(trace: StepTrace) -> int:
    return sum(calls for run, calls in trace.operators.items() if run.replay)

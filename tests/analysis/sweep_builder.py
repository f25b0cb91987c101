"""Small builders of real record folders, deterministic to the byte."""

import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from make_cell import base_config

from suite.cell import Cell
from suite.config.schema import ModelConfig, PolicyConfig
from suite.record import Record
from suite.store import RecordStore
from suite.summary import over_budget

MIB = 2**20
MODEL = ModelConfig(
    name="llama_mini",
    family="llama",
    vocab_size=4096,
    n_layers=8,
    d_model=256,
    n_heads=8,
    n_kv_heads=4,
    d_ff=704,
    max_seq_len=8192,
)
FINGERPRINT = {
    "device": {"type": "cpu", "name": "Example CPU", "memory_bytes": 8 * 2**30},
    "torch": "2.13.0",
    "host": {"cores": 2, "platform": "Linux"},
}
CODE = {"version": "0.1.0", "source_digest": "0" * 64, "git": "", "dirty": False}
PROTOCOL = {"steps": 5, "warmup_min_steps": 2, "threads": 2}

# Family, options, share of activations kept at the peak, cost in time, FLOPs recomputed per model FLOP.
POLICIES: tuple[tuple[str, dict[str, Any], float, float, float], ...] = (
    ("none", {}, 1.0, 1.0, 0.0),
    ("full", {}, 0.16, 1.27, 0.25),
    ("segments", {"n": "sqrt"}, 0.30, 1.30, 0.31),
    ("blocks", {"every_n": 2}, 0.58, 1.14, 0.125),
    ("modules", {"names": ["attn"]}, 0.80, 1.08, 0.08),
    ("modules", {"names": ["mlp"]}, 0.45, 1.12, 0.15),
    ("ops", {"save": "attn"}, 0.22, 1.20, 0.22),
    ("ops", {"save": "mm+attn"}, 0.62, 1.03, 0.0),
    ("ops", {"save": "every_second_mm"}, 0.38, 1.10, 0.09),
)


def cell(policy: str = "none", options: dict[str, Any] | None = None, **changes: Any) -> Cell:
    """A cell of the small Llama; ``changes`` are fields of CellConfig."""
    workload = {"policy": PolicyConfig(policy, options or {}), "seq_len": 1024, "threads": 2}
    return Cell(base_config(changes.pop("model", MODEL), **{**workload, **changes}))


def record(of: Cell, pass_: str, status: str = "ok", round_: int = 0, **fields: Any) -> Record:
    """A valid record; without an error given, an unhealthy one says ``<status> on purpose``."""
    if status != "ok" and "error" not in fields:
        fields["error"] = {"type": "Example", "message": f"{status} on purpose", "where": "test"}
    common = {"config": of.resolved, "protocol": PROTOCOL, "code": CODE, "fingerprint": FINGERPRINT}
    return Record(of.id, of.workload_id, pass_, round_, status=status, **{**common, **fields})


def memory(of: Cell, peak: float, saved: float, phase: str = "backward", **fields: Any) -> Record:
    """A memory record whose detail is consistent with its peak of ``peak`` bytes."""
    static = 24 * MIB
    parts = {"parameter": static / 3, "gradient": static / 3, "optimizer_state": static / 3}
    parts = {"batch": 0.1 * MIB, **parts, "activation": peak - static - 0.1 * MIB}
    tensors = [
        {
            "bytes": parts["activation"] / (i + 2),
            "operator": "aten.mm.default",
            "module": f"blocks.{i}.mlp.gate_up",
            "shape": [of.config.batch_size, of.config.seq_len, 1408],
            "dtype": "torch.float32",
            "phase": "forward",
            "kind": "activation",
            "name": "",
        }
        for i in range(10)
    ]
    detail = {
        "meter": "tracker",
        "peak_phase": phase,
        "peak_operator": "aten.mm.default",
        "peak_module": "blocks.7.mlp",
        "top_tensors": tensors,
        "phase_peaks": {
            "forward": 0.9 * peak,
            "loss": 0.95 * peak,
            "backward": peak,
            "optimizer": static * 1.2,
        },
        "peak_composition": parts,
        "live_bytes": _live(static, peak),
    }
    figures = {
        "peak_bytes": peak,
        "saved_bytes": saved,
        "static_bytes": static,
        "activation_bytes": peak - static,
    }
    return record(of, "memory", figures=figures, detail=detail, **fields)


def flops(of: Cell, model: float, recomputed: float) -> Record:
    """FLOPs of one step."""
    figures = {
        "model_flops": model,
        "executed_flops": model + recomputed,
        "recomputed_flops": recomputed,
    }
    return record(of, "flops", figures=figures)


def explain(memory: Record, flops: Record | None = None, rules: Iterable[str] = ("norm", "act")) -> None:
    """Add to both what a policy's rules kept and what ran again, as the passes write it."""
    scale = memory.figures["saved_bytes"] / 10
    places = [("blocks.*.mlp.gate_up", "aten::mm", 5), ("blocks.*", "aten::add.Tensor", 3)]
    places += [("blocks.*.attn_norm", "aten::mul.Tensor", 1.5), ("", "aten::cos", 0.5)]
    memory.detail["kept"] = [
        {"place": place, "operator": operator, "count": 8, "bytes": share * scale}
        for place, operator, share in places
    ]
    names = list(rules)
    memory.detail["entries"] = [
        {"name": name, "hits": 8 * (i + 1), "kept_bytes": i * MIB} for i, name in enumerate(names)
    ]
    memory.figures["saved_outside_regions_bytes"] = 3 * scale
    if flops is None:
        return
    flops.figures["blocks_recomputed_count"] = 8
    flops.detail["entries"] = [
        {"name": name, "spared_flops": 2e6, "replayed_flops": i * 1e6} for i, name in enumerate(names)
    ]
    flops.detail["work"] = [
        {"place": f"blocks.*.p{i}", "operator": "aten::mm", "replay_calls": i, "replay_flops": 1e6 * i}
        for i in range(12)
    ]


def parity(of: Cell, bitwise: bool = True) -> Record:
    """Gradients equal to the last bit, or within a tolerance."""
    gap = 0.0 if bitwise else 3.2e-7
    figures = {"max_grad_abs_diff": gap, "max_grad_rel_diff": gap, "parameters_compared_count": 58}
    return record(of, "parity", figures=figures, detail={"bitwise": bitwise})


def time(of: Cell, step_time_s: float, round_: int = 0, rate: float = 0.0) -> Record:
    """One round; ``rate`` is the peak FLOP/s that MFU is relative to."""
    tokens = of.config.batch_size * of.config.seq_len
    figures = {"step_time_s": step_time_s, "tokens_per_s": tokens / step_time_s, "steps_count": 5}
    detail: dict[str, Any] = {"step_times_s": [step_time_s] * 5}
    if rate:
        figures["peak_flops_per_s"] = rate
        detail["peak_flops_source"] = "Example data sheet"
    return record(of, "time", round_=round_, figures=figures, detail=detail)


def manifest(cells: Iterable[Cell], **changes: Any) -> dict[str, Any]:
    """The sweep's description as the runner writes it."""
    return {
        "schema": 1,
        "name": "example",
        "cells": [{"id": c.id, "workload": c.workload_id, "config": c.resolved} for c in cells],
        "protocol": PROTOCOL,
        "code": CODE,
        "fingerprint": FINGERPRINT,
        "budget_bytes": None,
        "reference": "none",
        "passes": ["memory", "flops", "parity", "time"],
        "rounds": 5,
        "command": "python -m suite +sweep=long_seq",
        "created_at": "2026-01-01T10:00:00Z",
        "updated_at": "2026-01-01T10:03:00Z",
        "state": "finished",
        **changes,
    }


def store(root: Path, records: Iterable[Record], described: dict[str, Any] | None) -> RecordStore:
    """A folder with these records and, unless None, this manifest."""
    made = RecordStore(root)
    for each in records:
        made.write(each)
    if described is not None:
        made.write_manifest(described)
    return made


def long_sweep(root: Path, *, rounds: int = 5, rate: float = 6e11, budget: int = 160 * MIB) -> RecordStore:
    """A sweep as the suite measures it: nine policies, four lengths, a second kernel at one length.

    As the runner does, cells above the budget get no further pass; one cell has wrong gradients,
    one does nothing, one crashed, one is unsupported and one has not been measured.
    """
    draw = random.Random(7)  # a fixed sequence, no secret
    cells: list[Cell] = []
    records: list[Record] = []
    workloads = [(length, "sdpa") for length in (512, 1024, 2048, 4096)] + [(1024, "eager")]
    for length, kernel in workloads:
        drift = [math.exp(draw.gauss(0, 0.06)) for _ in range(rounds)]
        model_flops = 2.2e7 * length * (1 + length / 8192)
        for family, options, kept, cost, recomputed in POLICIES:
            of = cell(family, options, seq_len=length, attention=kernel)
            cells.append(of)
            scale = length / 1024 * (1.6 if kernel == "eager" else 1.0)
            found = memory(
                of, 24 * MIB + kept * 90 * MIB * scale + 6 * MIB * scale, kept * 80 * MIB * scale
            )
            records.append(found)
            if over_budget(found, budget):
                continue
            records += [flops(of, model_flops, recomputed * model_flops), parity(of, family != "segments")]
            base = 0.09 * scale**1.1 * cost
            records += [
                time(of, base * shift * math.exp(draw.gauss(0, 0.008)), i, rate)
                for i, shift in enumerate(drift)
            ]
    extra = [
        cell("ops", {"save": "gate_up"}),
        cell("modules", {"names": ["norms"]}),
        cell("blocks", {"last": 1}),
        cell("modules", {"names": ["core_attn"]}),
        cell("ops", {"save": "qkv"}),
    ]
    wrong, idle, crashed, refused, _ = extra
    gap = {
        "type": "GradientMismatch",
        "message": "blocks.3.wq.weight differs by 4.1e-02",
        "where": "parity",
    }
    figures = {"max_grad_abs_diff": 0.041, "max_grad_rel_diff": 0.2, "parameters_compared_count": 58}
    records += [
        memory(wrong, 70 * MIB, 30 * MIB),
        record(wrong, "parity", "wrong", error=gap, figures=figures),
        *(time(wrong, 0.098, i) for i in range(rounds)),
        memory(idle, 120 * MIB, 80 * MIB),
        flops(idle, 2.2e7 * 1024 * 1.125, 0.0),
        record(crashed, "memory", "crash", error={"type": "signal", "message": "SIGSEGV", "where": "mm"}),
        record(refused, "memory", "unsupported"),
    ]
    return store(root, records, manifest([*cells, *extra], budget_bytes=budget, rounds=rounds))


def _live(static: float, peak: float) -> list[list[Any]]:
    phases = [("forward", 240), ("loss", 30), ("backward", 360), ("optimizer", 90)]
    series: list[list[Any]] = []
    for phase, events in phases:
        for i in range(events):
            share = i / events
            height = {
                "forward": share * 0.9,
                "loss": 0.9 + 0.05 * share,
                "backward": 1.0 - share if i > 10 else 0.95 + share,
                "optimizer": 0.05,
            }[phase]
            series.append(
                [
                    len(series),
                    static + min(1.0, height) * (peak - static) * (1 - 0.04 * (i % 7 == 3)),
                    phase,
                ]
            )
    return series

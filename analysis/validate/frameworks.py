"""Hugging Face and other frameworks: single changes, of which those with a known shape are compared."""

from collections.abc import Sequence
from typing import Any

from analysis.validate.case import Case, Outcome, Partner, Request, Unmodelled
from analysis.validate.rows import UNIT_BYTES, Row
from analysis.validate.workload import FULL, at_depth, label_of, request
from suite.config.schema import ModelConfig, ParallelConfig

_OFFLOAD: dict[str, Any] = {"family": "offload", "what": "block_inputs"}
_GIB, _MIB = UNIT_BYTES["GiB"], UNIT_BYTES["MiB"]
_DEPTHS = (4, 2)
# Rows that differ in one option: row, and the one that it is compared with.
_OFFLOADED = {
    "hf_and_frameworks-012": "hf_and_frameworks-011",
    "hf_and_frameworks-022": "hf_and_frameworks-021",
    "hf_and_frameworks-024": "hf_and_frameworks-023",
}
_INPUTS = "hf_and_frameworks-004"
_RESIDENT, _RESIDENT_OFFLOADED = "hf_and_frameworks-002", "hf_and_frameworks-003"
_REASONS = {
    "HF Transformers": "a rule of thumb without a workload",
    "NVIDIA NeMo": "a rule of thumb without a workload",
    "huggingface/accelerate PR #4175 (2026": "the model is not stated",
    "huggingface/accelerate PR #4172": "children of each layer wrapped by mistake: no policy",
    "huggingface/trl": "sequence, batch and hardware not stated",
    "axolotl-ai-cloud/axolotl PR #3776": "a delta whose base, batch and optimizer are not stated",
    "hao-ai-lab": "a diffusion transformer for video",
    "Lightning-AI": "a loss without a model",
}
_SHAPE_CAVEAT = "shape recalled, not in the source; batch taken as one sequence"


def outcomes_of(rows: Sequence[Row]) -> list[Outcome]:
    """Bytes of block inputs, and what moving them to the host changes."""
    found: list[Outcome] = []
    by_id = {row.row_id: row for row in rows}
    for row in rows:
        if row.row_id == _INPUTS:
            found.append(_inputs(row, _qwen3_8b(), (row.mem_value or 0.0) * _GIB))
        elif row.row_id == _RESIDENT_OFFLOADED:
            other = by_id[_RESIDENT]
            freed = ((other.mem_value or 0.0) - (row.mem_value or 0.0)) * _MIB
            found += [_inputs(row, _qwen3_shape(8), freed), Partner(other.row_id, other.file, row.row_id)]
        elif row.row_id in _OFFLOADED:
            other = by_id[_OFFLOADED[row.row_id]]
            found += [_moved(row, other), Partner(other.row_id, other.file, row.row_id)]
        elif row.row_id not in {*_OFFLOADED.values(), _RESIDENT}:
            found.append(Unmodelled(row.row_id, row.file, _reason(row)))
    return found


def _reason(row: Row) -> str:
    return next((r for name, r in _REASONS.items() if row.source.startswith(name)), "shape not stated")


def _qwen3_shape(n_layers: int) -> ModelConfig:
    """Qwen3-0.6B; its norms of queries and keys are inside what is recomputed."""
    return ModelConfig(
        name="qwen3_0.6b",
        family="llama",
        vocab_size=151936,
        n_layers=n_layers,
        d_model=1024,
        n_heads=16,
        n_kv_heads=8,
        d_ff=3072,
        max_seq_len=2**20,
        head_dim=128,
        tied_head=True,
    )


def _qwen3_8b() -> ModelConfig:
    return ModelConfig(
        name="qwen3_8b",
        family="llama",
        vocab_size=151936,
        n_layers=36,
        d_model=4096,
        n_heads=32,
        n_kv_heads=8,
        d_ff=12288,
        max_seq_len=2**17,
        head_dim=128,
    )


def _request(row: Row, model: ModelConfig, policy: dict[str, Any]) -> Request:
    parallel = ParallelConfig(cp=row.cp or 1)
    return request(model, policy, "h100_80gb", seq_len=row.seq or 0, batch_size=1, parallel=parallel)


def _inputs(row: Row, model: ModelConfig, expected: float) -> Case:
    """What ``full`` keeps of every block, from two depths, so that the head does not matter."""
    asked = _request(row, model, FULL)
    requests = (at_depth(asked, _DEPTHS[0]), at_depth(asked, _DEPTHS[1]))
    scale = model.n_layers / (_DEPTHS[0] - _DEPTHS[1])
    return Case(
        row.row_id,
        row.file,
        label_of(asked),
        "activation_formula",
        "saved_bytes",
        expected,
        requests,
        scale=scale,
        caveat=_SHAPE_CAVEAT,
    )


def _moved(row: Row, other: Row) -> Case:
    model = _qwen3_8b() if (row.params_b or 0) > 1 else _qwen3_shape(28)
    requests = (_request(row, model, _OFFLOAD), _request(row, model, FULL))
    # Its note and its boundary inputs agree with decimal gigabytes at 0.6B and binary ones at 8B.
    factor = _GIB if (row.params_b or 0) > 1 else UNIT_BYTES["GB"]
    change = ((row.mem_value or 0.0) - (other.mem_value or 0.0)) * factor
    label, metric, caveat = label_of(requests[0]), "peak_allocated_bytes", _SHAPE_CAVEAT
    return Case(row.row_id, row.file, label, "memory_difference", metric, change, requests, caveat=caveat)

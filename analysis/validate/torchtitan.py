"""torchtitan: tokens per second and reserved memory of Llama 2, 3 and 3.1 under FSDP2.

Its console prints ``max_reserved``: the allocator's peak of reserved bytes, the largest over the GPUs. A
row with a throughput and no memory says that the run fitted.
"""

from collections.abc import Sequence
from typing import Any

from analysis.validate.case import Case, Outcome, Partner, Request, Unmodelled
from analysis.validate.rows import Row
from analysis.validate.workload import (
    EVERY_SECOND_MM,
    FSDP_CAVEAT,
    FULL,
    NONE,
    every_nth,
    fsdp,
    label_of,
    memory_of,
    preset,
    request,
)
from suite.config.schema import ModelConfig

# A batch of H100s with 96 GB of HBM2e: what CUDA reports of them.
_H100_96GB_BYTES = 95 * 2**30
_POLICIES: dict[str, dict[str, Any]] = {
    "none": NONE,
    "full": FULL,
    "selective layer (every 2nd block)": every_nth(2),
    "selective op (save every 2nd mm, SDPA, reduce-scatter)": EVERY_SECOND_MM,
}
# Rows of one table that differ in their policy alone: row, and the one that it is compared with.
_PAIRS = {
    "torchtitan-001": "torchtitan-000",
    "torchtitan-004": "torchtitan-003",
    "torchtitan-005": "torchtitan-003",
    # Batch 2 under full against batch 1 under selective: by token.
    "torchtitan-007": "torchtitan-006",
}


def outcomes_of(rows: Sequence[Row]) -> list[Outcome]:
    """Reserved memory where it is printed, the fit where it is not, and ratios of throughput."""
    found: list[Outcome] = []
    by_id = {row.row_id: row for row in rows}
    for row in rows:
        reason = _reason(row)
        if reason:
            found.append(Unmodelled(row.row_id, row.file, reason))
            continue
        asked = request_of(row)
        found.append(_memory(row, asked) if row.mem_bytes else _fits(row, asked))
        if row.row_id in _PAIRS:
            other = by_id[_PAIRS[row.row_id]]
            found += [_ratio(row, other, asked), Partner(other.row_id, other.file, row.row_id)]
    return found


def _reason(row: Row) -> str:
    told = f"{row.precision} {row.note}".lower()
    if "float8" in told:
        return "float8 linear layers: no precision of the suite"
    if row.ac_mode not in _POLICIES:
        return "model or batch not stated" if not row.micro_batch else f"no such policy: {row.ac_mode}"
    if not row.seq or not row.micro_batch or not row.n_gpus:
        return "batch, sequence or number of GPUs not stated"
    return ""


def request_of(row: Row) -> Request:
    """The run as the suite describes it; tensor parallel ranks of torchtitan are sequence parallel too."""
    tp, dp = row.tp or 1, row.dp_or_fsdp or 1
    return request(
        _model(row),
        _POLICIES[row.ac_mode],
        _hardware(row),
        seq_len=row.seq or 0,
        batch_size=row.micro_batch or 0,
        compiled=row.compile == "yes",
        parallel=fsdp(dp, tp=tp, sp=tp > 1),
    )


def _hardware(row: Row) -> str:
    return "a100_80gb" if "A100" in row.gpu else "h200_141gb" if "H200" in row.gpu else "h100_80gb"


def _capacity(row: Row) -> int:
    return _H100_96GB_BYTES if "H100" in row.gpu else memory_of(_hardware(row))


def _model(row: Row) -> ModelConfig:
    if row.model == "Llama 2 13B":
        return preset("llama2_7b", name="llama2_13b", n_layers=40, d_model=5120, n_heads=40, n_kv_heads=40,
                      d_ff=13824, head_dim=128, source="Llama 2, arXiv:2307.09288")  # fmt: skip
    name = "llama3_8b" if (row.params_b or 0) < 10 else "llama3_70b"
    if row.model == "Llama 3.1 405B":
        return preset(name, name="llama3_405b", n_layers=126, d_model=16384, n_heads=128, n_kv_heads=8,
                      d_ff=53248, head_dim=128, source="Llama 3, arXiv:2407.21783")  # fmt: skip
    longest = max(row.seq or 0, 8192)
    return preset(name, vocab_size=row.vocab or 128256, max_seq_len=longest)


def _memory(row: Row, asked: Request) -> Case:
    value, label = row.mem_bytes or 0.0, label_of(asked)
    return Case(
        row.row_id, row.file, label, "memory", "reserved_bytes", value, (asked,), caveat=FSDP_CAVEAT
    )


def _fits(row: Row, asked: Request) -> Case:
    ran = "out of memory" not in row.mem_kind
    return Case(
        row.row_id,
        row.file,
        label_of(asked),
        "fits",
        "reserved_bytes",
        float(ran),
        (asked,),
        capacity_bytes=_capacity(row),
        caveat=FSDP_CAVEAT,
    )


def _ratio(row: Row, other: Row, asked: Request) -> Case:
    measured = (other.tok_per_s_per_gpu or 0.0) / (row.tok_per_s_per_gpu or 1.0)
    requests = (asked, request_of(other))
    label = f"{label_of(asked)} / {label_of(requests[1])}"
    return Case(
        row.row_id, row.file, label, "time_ratio", "step_time_s", measured, requests, per_token=True
    )

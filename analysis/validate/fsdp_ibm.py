"""IBM's and PyTorch's FSDP runs of Llama 2: throughputs, and two gains from recomputing less.

Which share of the blocks a "selective layer" run recomputes is not said; the source's own HFU over MFU
says it, since a block that is recomputed adds a third to what it needs.
"""

from collections.abc import Sequence
from typing import Any

from analysis.validate.case import Case, Outcome, Request, Unmodelled
from analysis.validate.rows import Row
from analysis.validate.workload import (
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

_SHAPES: dict[str, dict[str, Any]] = {
    "Llama 2 7B": {},
    "Llama 2 13B": {"n_layers": 40, "d_model": 5120, "n_heads": 40, "n_kv_heads": 40, "d_ff": 13824},
    # As Code Llama 34B and Llama 2 70B: grouped queries.
    "Llama 2 34B": {"n_layers": 48, "d_model": 8192, "n_heads": 64, "n_kv_heads": 8, "d_ff": 22016},
    "Llama 2 70B": {"n_layers": 80, "d_model": 8192, "n_heads": 64, "n_kv_heads": 8, "d_ff": 28672},
}
_SHARE_CAVEAT = f"share of recomputed blocks from the source's HFU over MFU; {FSDP_CAVEAT}"
# Of the runs whose text names none.
_GPUS = 128


def outcomes_of(rows: Sequence[Row]) -> list[Outcome]:
    """That each run fitted, and the three comparisons of policies in the text."""
    found: list[Outcome] = []
    by_id = {row.row_id: row for row in rows}
    for row in rows:
        if row.ac_mode == "none vs AC":
            found.append(_gain(row, FULL, NONE))
        elif row.ac_mode.startswith("every n-th"):
            found.append(_gain(row, FULL, every_nth(2)))
        elif not row.tok_per_s_per_gpu:
            found.append(Unmodelled(row.row_id, row.file, "no figure"))
        else:
            found.append(_fits(row))
            if row.note.startswith("with AC on everywhere"):
                found.append(_against(row, by_id["pytorch_fsdp_ibm-002"]))
    return found


def _policy(row: Row) -> dict[str, Any]:
    if row.ac_mode in ("none", "full"):
        return NONE if row.ac_mode == "none" else FULL
    share = 3 * ((row.hfu_pct or 0.0) / (row.mfu_pct or 1.0) - 1)
    return every_nth(max(round(1 / share), 1))


def _model(row: Row) -> ModelConfig:
    name = row.model.lower().replace("llama 2 ", "llama2_")
    return preset("llama2_7b", name=name, head_dim=128, **_SHAPES[row.model])


def _request(row: Row, policy: dict[str, Any]) -> Request:
    return request(
        _model(row),
        policy,
        "h100_80gb" if "H100" in row.gpu else "a100_80gb",
        seq_len=row.seq or 0,
        batch_size=row.micro_batch or 0,
        compiled=row.compile == "yes",
        parallel=fsdp(row.n_gpus or _GPUS),
    )


def _fits(row: Row) -> Case:
    asked = _request(row, _policy(row))
    capacity, label = memory_of(asked["hardware"]), label_of(asked)
    caveat = _SHARE_CAVEAT if row.ac_mode == "selective layer" else FSDP_CAVEAT
    metric = "reserved_bytes"
    return Case(row.row_id, row.file, label, "fits", metric, 1.0, (asked,), 1.0, False, capacity, caveat)


def _gain(row: Row, slower: dict[str, Any], faster: dict[str, Any]) -> Case:
    ratio = 1 + (row.time_value or 0.0) / 100
    return _ratio(row, ratio, (_request(row, slower), _request(row, faster)))


def _against(row: Row, other: Row) -> Case:
    ratio = (other.tok_per_s_per_gpu or 0.0) / (row.tok_per_s_per_gpu or 1.0)
    return _ratio(row, ratio, (_request(row, FULL), _request(row, _policy(other))))


def _ratio(row: Row, ratio: float, requests: tuple[Request, Request]) -> Case:
    label = " / ".join(map(label_of, requests))
    caveat, metric = _SHARE_CAVEAT, "step_time_s"
    return Case(row.row_id, row.file, label, "time_ratio", metric, ratio, requests, caveat=caveat)

"""torchtune: Llama 3.2 3B on one A100, each row one more option than the row before."""

from collections.abc import Sequence

from analysis.validate.case import Case, Outcome, Partner, Request, Unmodelled
from analysis.validate.rows import Row
from analysis.validate.workload import FULL, NONE, label_of, preset, request

_REASONS = {
    "unpacked": "the sequence length varies",
    "+ optimizer in backward": "the optimizer's step inside backward",
    "+ activation offload": "offload under torch.compile with the optimizer's step inside backward",
    "+ 8-bit AdamW": "8-bit optimizer states",
    "LoRA": "LoRA",
    "QLoRA": "QLoRA",
}
_CHUNKED = "packed + chunked loss"
_CHUNKED_CAVEAT = (
    "both sides with torchtune's chunked loss, which keeps the 16-bit logits; predicted with a plain one"
)
_ACTIVE_CAVEAT = "active bytes, which count blocks that a stream still uses, against allocated ones"


def outcomes_of(rows: Sequence[Row]) -> list[Outcome]:
    """Peaks of the plain rows; what recomputation changes, between the two with a chunked loss."""
    found: list[Outcome] = []
    chunked = next(row for row in rows if row.ac_detail == _CHUNKED and row.ac_mode == "none")
    for row in rows:
        if row.ac_detail in _REASONS:
            found.append(Unmodelled(row.row_id, row.file, _REASONS[row.ac_detail]))
        elif row is chunked:
            continue
        elif row.ac_detail == _CHUNKED:
            found += [*_change(row, chunked), Partner(chunked.row_id, chunked.file, row.row_id)]
        else:
            asked, value, metric = _request(row), row.mem_bytes or 0.0, "peak_allocated_bytes"
            label = label_of(asked)
            found.append(
                Case(row.row_id, row.file, label, "memory", metric, value, (asked,), caveat=_ACTIVE_CAVEAT)
            )
    return found


def _request(row: Row) -> Request:
    return request(
        preset("llama3_3b"),
        NONE if row.ac_mode == "none" else FULL,
        "a100_80gb",
        seq_len=row.seq or 0,
        batch_size=row.micro_batch or 0,
        compiled=row.compile == "yes",
    )


def _change(row: Row, plain: Row) -> list[Case]:
    requests = (_request(row), _request(plain))
    ratio = (plain.tok_per_s_per_gpu or 0.0) / (row.tok_per_s_per_gpu or 1.0)
    saved, label, metric = (
        (row.mem_bytes or 0) - (plain.mem_bytes or 0),
        label_of(requests[0]),
        "step_time_s",
    )
    memory, caveat = "peak_allocated_bytes", _CHUNKED_CAVEAT
    return [
        Case(row.row_id, row.file, label, "memory_difference", memory, saved, requests, caveat=caveat),
        Case(row.row_id, row.file, label, "time_ratio", metric, ratio, requests, caveat=caveat),
    ]

"""llm-foundry: throughputs of MPT under FSDP; of memory only that every run fitted."""

from collections.abc import Sequence

from analysis.validate.case import Case, Outcome, Request, Unmodelled
from analysis.validate.rows import Row
from analysis.validate.workload import FSDP_CAVEAT, FULL, NONE, fsdp, label_of, memory_of, request
from suite.config.schema import ModelConfig


def outcomes_of(rows: Sequence[Row]) -> list[Outcome]:
    """Whether each 16-bit run fits its card; no two runs differ in their policy alone."""
    found: list[Outcome] = []
    for row in rows:
        if "fp8" in row.precision:
            found.append(Unmodelled(row.row_id, row.file, "products in FP8"))
            continue
        asked = _request(row)
        capacity, label, metric = memory_of(asked["hardware"]), label_of(asked), "reserved_bytes"
        caveat = f"MPT has no biases; {FSDP_CAVEAT}"
        found.append(
            Case(row.row_id, row.file, label, "fits", metric, 1.0, (asked,), 1.0, False, capacity, caveat)
        )
    return found


def _request(row: Row) -> Request:
    hidden = row.hidden or 0
    model = ModelConfig(
        name=row.model.lower().replace(" ", "_"),
        family="gpt",
        vocab_size=row.vocab or 0,
        n_layers=row.layers or 0,
        d_model=hidden,
        n_heads=row.heads or 1,
        n_kv_heads=row.kv_heads or 1,
        d_ff=row.ffn_hidden or 4 * hidden,
        max_seq_len=row.seq or 0,
        dropout=0.0,
        tied_head=True,
    )
    zero = 2 if "SHARD_GRAD_OP" in row.ac_detail else 3
    asked = request(
        model,
        NONE if row.ac_mode == "none" else FULL,
        row.gpu,
        seq_len=row.seq or 0,
        batch_size=row.micro_batch or 0,
        parallel=fsdp(row.dp_or_fsdp or 1, zero=zero, micro_batches=row.grad_accum or 1),
    )
    # MPT's default loss_fn is flash-attention's fused cross entropy (llm-foundry, modeling_mpt.py).
    return asked | {"assumptions": {"loss_kernel": "fused"}}

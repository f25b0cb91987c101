"""Megatron-LM's functional tests: golden allocator statistics of the last rank, mostly of a 64 M model.

``mem-allocated-bytes`` and ``mem-max-allocated-bytes`` are ``torch.cuda.memory_stats()``'s current and
peak allocated bytes. Megatron writes them to TensorBoard, whose writer is on the last rank: the last stage
of a pipeline, with the head and the loss. The current bytes are read after a step and its optimizer, while
the fp32 gradient buffer lives on: parameters, gradients, states, and what libraries hold.
"""

import re
from collections.abc import Sequence

from analysis.validate.case import Case, Outcome, Partner, Request, Unmodelled
from analysis.validate.megatron_reasons import peak_reason, whole_reason
from analysis.validate.rows import Row
from analysis.validate.workload import FULL, NONE, label_of, request
from suite.config.schema import ModelConfig, ParallelConfig

HARDWARE = {
    "A100": "a100_80gb",
    "unknown (lts: A100)": "a100_80gb",
    "H100": "h100_80gb",
    "GB200": "gb200_186gb",
}
# GPT-2's BPE; every test that names no vocabulary uses it. Padded to a multiple of 128 times tp.
GPT2_VOCAB = 50257
_VOCAB_MULTIPLE = 128
_STEADY = re.compile(r"steady allocated (\d+)")
_SMALL_HIDDEN = 512
_SMALL = "a 64 M model: library workspaces and masks of some 70-100 MiB weigh 10 % of it"
# Which plain run a recomputing one is compared with; both are in the table for every card and image.
_PLAIN = {
    "gpt3_mcore_te_tp1_pp1_resume_torch_dist_uniform_full_recompute": (
        "gpt3_mcore_te_tp1_pp1_resume_torch_dist_dist_optimizer"
    ),
    "gpt3_mcore_te_tp1_pp1_resume_torch_dist_uniform_full_recompute_1node": (
        "gpt3_mcore_te_tp1_pp1_resume_torch_dist_dist_optimizer_1node"
    ),
    "gpt3_mcore_te_tp1_pp1_uniform_full_recompute": (
        "gpt3_mcore_te_tp1_pp1_dist_optimizer_no_mmap_bin_files"
    ),
}


def outcomes_of(rows: Sequence[Row]) -> list[Outcome]:
    """Static bytes and the peak of every run that the suite can describe; time only as paired ratios."""
    found: list[Outcome] = []
    by_file = {(row.model, _file(row)): row for row in rows}
    for row in rows:
        reason = whole_reason(row)
        if reason:
            found.append(Unmodelled(row.row_id, row.file, reason))
            continue
        found += _memory(row)
        plain = by_file.get((_PLAIN.get(row.model, ""), _file(row)))
        if plain and row.time_value and plain.time_value:
            found += [_ratio(row, plain), Partner(plain.row_id, plain.file, row.row_id)]
    return found


def _file(row: Row) -> str:
    return row.source_ref.rsplit("/", 1)[1]


def _memory(row: Row) -> list[Outcome]:
    asked = request_of(row)
    label, small = label_of(asked), _SMALL if row.hidden == _SMALL_HIDDEN else ""
    cases: list[Outcome] = []
    unseen = peak_reason(row)
    steady = _STEADY.search(row.mem_kind)
    if steady:
        caveat = "; ".join(filter(None, (small, f"peak not compared: {unseen}" if unseen else "")))
        value = float(steady.group(1))
        cases.append(
            Case(row.row_id, row.file, label, "memory", "static_bytes", value, (asked,), caveat=caveat)
        )
    if not unseen and row.mem_bytes:
        caveat = "; ".join(filter(None, (_kernel_caveat(row), small)))
        metric = "peak_allocated_bytes"
        cases.append(
            Case(row.row_id, row.file, label, "memory", metric, row.mem_bytes, (asked,), caveat=caveat)
        )
    return cases or [Unmodelled(row.row_id, row.file, "no memory figure")]


def _ratio(row: Row, plain: Row) -> Case:
    measured = (row.time_value or 0.0) / (plain.time_value or 1.0)
    asked = (request_of(row), request_of(plain))
    caveat = "noisy CI times of a step that launches, not computes; the plain run shards its optimizer"
    label = label_of(asked[0])
    return Case(row.row_id, row.file, label, "time_ratio", "step_time_s", measured, asked, caveat=caveat)


def request_of(row: Row) -> Request:
    """The run as the suite describes it, of the last rank."""
    parallel = _parallel(row)
    policy = FULL if row.ac_mode == "full" else NONE
    return request(
        _model(row, parallel.pp),
        policy,
        HARDWARE[row.gpu],
        seq_len=row.seq or 0,
        batch_size=row.micro_batch or 0,
        attention=kernel_of(row),
        parallel=parallel,
    )


def kernel_of(row: Row) -> str:
    """``eager`` where the scores are stored, else ``flash``.

    By the tests' ``model_config.yaml``: ``--attention-backend: unfused`` in tests that run once, flash
    under context parallelism, and no choice, which is flash, in those that resume and in the 7B ones.
    Golden files of clusters no longer in use are from when all but context parallelism and resharding
    was unfused.
    """
    if row.attention == "local":
        return "eager"
    if (row.cp or 1) > 1 or "_7b_" in row.model:
        return "flash"
    return "flash" if ("resume" in row.model and not _is_stale(row)) or "_zp_" in row.model else "eager"


def _is_stale(row: Row) -> bool:
    old = "dracooci" in _file(row) or _file(row) == "golden_values_dev.json"
    return old and "reshard" not in row.model


def _kernel_caveat(row: Row) -> str:
    if row.attention == "local" or (row.cp or 1) > 1:
        return ""
    return (
        f"attention {kernel_of(row)} by the test's kind: some golden files are older than their arguments"
    )


def _parallel(row: Row) -> ParallelConfig:
    tp, pp, cp = row.tp or 1, row.pp or 1, row.cp or 1
    # A GB200 node has four; the tests that are not "_1node" take two of them.
    n_gpus = 4 if row.model.endswith("_1node") else 8
    dp = max(n_gpus // (tp * pp * cp), 1)
    micro_batches = max((row.global_batch or dp) // ((row.micro_batch or 1) * dp), 1)
    if "multi_dist_optimizer_instances" in row.model:
        # --num-distributed-optimizer-instances 2: each half of the replicas shares out all the states.
        dp = max(dp // 2, 1)
    zero = 3 if "_zp_z3_" in row.model else 1 if "distributed" in row.optimizer else 0
    return ParallelConfig(
        dp=dp,
        zero=zero,
        tp=tp,
        sp=bool(row.sp) and tp > 1,
        pp=pp,
        vpp=_chunks(row, pp),
        cp=cp,
        stage=pp - 1,
        micro_batches=micro_batches,
        recipe="megatron",
    )


def _chunks(row: Row, pp: int) -> int:
    """The column holds --num-layers-per-virtual-pipeline-stage."""
    return max((row.layers or 0) // pp // row.vpp, 1) if row.vpp else 1


def _model(row: Row, pp: int) -> ModelConfig:
    hidden, heads, layers = row.hidden or 0, row.heads or 1, row.layers or 0
    if "uneven_pipeline" in row.model:
        # --decoder-last-pipeline-num-layers 2: the last stage of an even pipeline of two each.
        layers = 2 * pp
    multiple = _VOCAB_MULTIPLE * (row.tp or 1)
    untied = any(word in row.model for word in ("unti", "_7b_", "uneven_pipeline"))
    return ModelConfig(
        name=row.model,
        family="gpt",
        vocab_size=-(-(row.vocab or GPT2_VOCAB) // multiple) * multiple,
        n_layers=layers,
        d_model=hidden,
        n_heads=heads,
        n_kv_heads=row.kv_heads or heads,
        d_ff=row.ffn_hidden or 4 * hidden,
        max_seq_len=row.seq or 0,
        # Context parallel tests switch it off.
        dropout=0.0 if (row.cp or 1) > 1 else 0.1,
        tied_head=not untied,
    )

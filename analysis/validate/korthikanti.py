"""Korthikanti et al. 2022 (arXiv:2205.05198): layer and iteration times, and shares of activations.

What the paper says of one layer is predicted from the same model at two depths.
"""

from collections.abc import Sequence
from typing import Any

from analysis.validate.case import Case, Outcome, Partner, Request, Unmodelled
from analysis.validate.rows import Row
from analysis.validate.workload import CORE_ATTENTION, FULL, NONE, at_depth, label_of, request
from suite.config.schema import ModelConfig, ParallelConfig

_POLICIES: dict[str, dict[str, Any]] = {"none": NONE, "full": FULL}
_LAYER, _ITERATION = "one layer combined", "iteration"
_DEPTHS = (4, 2)


def layer_outcomes(rows: Sequence[Row]) -> list[Outcome]:
    """Table 4: time of one layer of the 22B model over that of the baseline without recomputation."""
    baseline = next(row for row in rows if row.phase == _LAYER and row.ac_detail == "baseline")
    found: list[Outcome] = []
    for row in rows:
        if row.phase != _LAYER:
            found.append(
                Unmodelled(row.row_id, row.file, "forward or backward alone: a step is predicted whole")
            )
        elif row is not baseline:
            ratio = (row.time_value or 0.0) / (baseline.time_value or 1.0)
            found += [_layer(row, ratio), Partner(baseline.row_id, baseline.file, row.row_id)]
    return found


def iteration_outcomes(rows: Sequence[Row]) -> list[Outcome]:
    """Table 5: an iteration under full recomputation over one under selective with sequence parallelism."""
    selective = {
        row.model: row for row in rows if row.ac_mode.startswith("selective") and row.dp_or_fsdp == 1
    }
    found: list[Outcome] = []
    for row in rows:
        other = selective[row.model]
        if row.ac_mode == "full":
            requests = (_request(row), _request(other))
            ratio = (row.time_value or 0.0) / (other.time_value or 1.0)
            label = " / ".join(map(label_of, requests))
            metric = "step_time_s"
            found += [
                Case(row.row_id, row.file, label, "time_ratio", metric, ratio, requests),
                Partner(other.row_id, other.file, row.row_id),
            ]
        elif row is not other:
            found.append(Unmodelled(row.row_id, row.file, "cost of data parallelism, not of a policy"))
    return found


def claim_outcomes(rows: Sequence[Row]) -> list[Outcome]:
    """Overheads by layer, and what selective recomputation leaves of the activations."""
    found: list[Outcome] = []
    for row in rows:
        if row.phase == "one layer overhead percent":
            found.append(_layer(row, 1 + (row.time_value or 0.0) / 100))
        elif row.mem_unit == "percent activation memory":
            found.append(_activations(row))
        else:
            found.append(
                Unmodelled(row.row_id, row.file, "outputs of stages freed: no policy of the suite")
            )
    return found


def _policy(row: Row) -> dict[str, Any]:
    return _POLICIES.get(row.ac_mode, CORE_ATTENTION)


def _request(row: Row, *, policy: dict[str, Any] | None = None, sp: bool | None = None) -> Request:
    hidden, pp, dp = row.hidden or 0, row.pp or 1, row.dp_or_fsdp or 1
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
        dropout=0.1,
        tied_head=True,
    )
    parallel = ParallelConfig(
        dp=dp,
        tp=row.tp or 1,
        sp=bool(row.sp) if sp is None else sp,
        pp=pp,
        # The column holds the interleaving stages themselves here.
        vpp=row.vpp or 1,
        micro_batches=(row.global_batch or 1) // ((row.micro_batch or 1) * dp),
        recipe="megatron",
    )
    return request(
        model,
        policy or _policy(row),
        "a100_80gb",
        seq_len=row.seq or 0,
        batch_size=row.micro_batch or 0,
        attention="eager",
        parallel=parallel,
    )


def _two_depths(asked: Request) -> tuple[Request, Request]:
    """One device's share of a trunk that is not cut into stages, at two depths."""
    config = asked["config"]
    alone = asked | {"config": config | {"parallel": config["parallel"] | {"pp": 1, "vpp": 1}}}
    return at_depth(alone, _DEPTHS[0]), at_depth(alone, _DEPTHS[1])


def _sequence_parallel(row: Row) -> bool:
    return bool(row.sp) or "SP" in row.ac_mode


def _layer(row: Row, ratio: float) -> Case:
    asked = _request(row, sp=_sequence_parallel(row))
    requests = (*_two_depths(asked), *_two_depths(_request(row, policy=NONE, sp=False)))
    label, metric = label_of(asked), "step_time_s"
    return Case(row.row_id, row.file, label, "time_ratio", metric, ratio, requests)


def _activations(row: Row) -> Case:
    asked = _request(row, sp=True)
    requests = (*_two_depths(asked), *_two_depths(_request(row, policy=NONE, sp=True)))
    ratio, label, metric = 1 + (row.mem_value or 0.0) / 100, label_of(asked), "saved_bytes"
    return Case(row.row_id, row.file, label, "activation_formula", metric, ratio, requests)

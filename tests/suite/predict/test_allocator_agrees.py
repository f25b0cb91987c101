"""The predicted peak is what torch's CPU allocator gave out: within 2 %, and but for named causes, exactly.

The steps run as in the memory pass, without its tracker. See ``allocator_peak`` for the causes.
"""

from typing import Any

import pytest
import torch
from allocator_peak import CAUSES, NotedHostCopy, run_steps
from make_cell import make_cell

from suite.cell import Cell
from suite.config.schema import DataConfig, OptimizerConfig
from suite.predict.cell import predict_cell

TOLERANCE = 0.02
# What torch.get_rng_state returns; every checkpointed region keeps one while its forward may run again.
RANDOM_STATE_BYTES = torch.get_rng_state().nbytes
# A Python number beside a tensor becomes a tensor of one int64 or float64.
NUMBER_BYTES = 8

FUSED, FORLOOP, SGD = OptimizerConfig(impl="fused"), OptimizerConfig(impl="forloop"), OptimizerConfig("sgd")
OFFLOAD = {"family": "offload", "min_bytes": 0}
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("llama_nano", {"family": "none"}, {}),
    ("llama_nano", {"family": "none"}, {"attention": "flash", "precision": "bf16-true"}),
    (
        "llama_nano",
        {"family": "none"},
        {"attention": "eager", "precision": "bf16-mixed", "data": DataConfig(kind="packed")},
    ),
    ("llama_nano", {"family": "full"}, {}),
    ("llama_nano", {"family": "full", "use_reentrant": True}, {"precision": "bf16-true"}),
    ("llama_nano", {"family": "segments", "n": 2}, {"model_n_layers": 8}),
    ("llama_nano", {"family": "ops", "save": "mm+attn"}, {"optimizer": FORLOOP}),
    ("llama_nano", {"family": "modules", "targets": ["attn", "mlp"]}, {"attention": "eager"}),
    ("llama_nano", {"family": "discard", "targets": "all"}, {"optimizer": FUSED}),
    ("llama_nano", {**OFFLOAD, "what": "block_inputs"}, {}),
    ("llama_nano", {**OFFLOAD, "what": "saved"}, {}),
    ("llama_nano", {"family": "tiled", "mlp": 4, "loss": 4}, {}),
    ("llama_nano", {"family": "compressed", "what": "saved", "min_bytes": 0}, {}),
    ("gpt_nano", {"family": "none"}, {"precision": "bf16-mixed", "optimizer": FUSED}),
    ("gpt_nano", {"family": "full"}, {"optimizer": FORLOOP}),
    ("gpt_nano", {"family": "ops", "save": "mm+attn"}, {}),
    ("gpt_nano", {"family": "blocks", "every_n": 2}, {"model_dropout": 0.0}),
    ("moe_nano", {"family": "none"}, {}),
    ("moe_nano", {"family": "full"}, {"precision": "bf16-mixed"}),
    ("moe_nano", {"family": "discard", "targets": "all"}, {"precision": "bf16-true", "optimizer": SGD}),
    ("moe_nano", {"family": "rebuild", "targets": "all"}, {}),
]
CELLS = [make_cell(model, policy, **{"seq_len": 256, **changes}) for model, policy, changes in CASES]


@pytest.mark.parametrize("cell", CELLS, ids=lambda c: f"{c.policy_label} {c.workload_label}")
def test_the_allocator_gave_out_what_was_predicted(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    predicted = predict_cell(cell.config).figures
    monkeypatch.setattr("suite.policies.host.HostCopy", NotedHostCopy)
    log = run_steps(cell.config)
    peak = predicted["peak_bytes"]
    assert log.summed == log.totals  # no birth or end is missing, nor out of order

    # The figure with everything that only the allocator sees. On the CPU the host's copies are in it too.
    assert abs(log.peak_bytes(without=["host"]) - peak) <= TOLERANCE * peak
    assert log.peak_bytes() <= (1 + TOLERANCE) * (peak + predicted.get("host_peak_bytes", 0))

    assert log.peak_bytes(without=CAUSES) == peak
    outside = {block.nbytes for block in log.blocks if block.cause == "outside"}
    assert outside <= {RANDOM_STATE_BYTES, NUMBER_BYTES}

"""The predicted peak is what torch's CPU allocator gave out: within 2 %, and but for named causes, exactly.

The steps run as in the memory pass, without its tracker. See ``allocator_peak`` for the causes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from allocator_peak import CAUSES, NotedHostCopy, run_steps
from make_cell import make_cell
from resident_peak import cell_of

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


def test_autograd_adds_gradients_in_place_where_no_mode_looks_on() -> None:
    # Under a dispatch mode, the tracker's or the trace's, autograd sums the gradients that a weight gets
    # from two tiles into a new tensor. Without one it adds in place. Where the peak is at that sum, the
    # prediction is too high, by less than the new tensor.
    policy = {"family": "tiled", "mlp": 2, "loss": 2, "linear_cross_entropy": True}
    cell = make_cell("gpt_nano", policy, precision="bf16-mixed", seq_len=128)
    log, predicted = run_steps(cell.config), predict_cell(cell.config)
    largest = (
        4 * cell.config.model.d_model * cell.config.model.d_ff
    )  # the gradient of an MLP's weight, fp32
    peak = predicted.figures["peak_bytes"]
    assert 0 < peak - log.peak_bytes(without=CAUSES) <= largest
    assert abs(log.peak_bytes() - peak) <= TOLERANCE * peak


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("policy", ["none", "discard"])
def test_the_system_saw_what_was_predicted(policy: str) -> None:
    seq_len = 1024
    peak = predict_cell(cell_of(seq_len, policy).config).figures["peak_bytes"]
    script = Path(__file__).with_name("resident_peak.py")
    done = subprocess.run(
        [sys.executable, str(script), policy, str(seq_len)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    resident = json.loads(done.stdout.splitlines()[-1])["resident_bytes"]
    assert abs(resident - peak) <= TOLERANCE * peak

"""A predicted cell is the measured one: byte for byte and FLOP for FLOP, composed or traced whole."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_cell import POLICIES, make_cell, make_session

from suite.cell import Cell
from suite.config.load import check_policy
from suite.config.schema import DataConfig, OptimizerConfig
from suite.errors import Unsupported
from suite.measure import Measurement, measure
from suite.predict.cell import predict_cell

# Each kernel, precision, optimizer and kind of data at least once.
WORKLOADS: list[dict[str, Any]] = [
    {"model": "llama_nano", "model_n_layers": 6},
    {"model": "gpt_nano", "precision": "bf16-mixed", "optimizer": OptimizerConfig(impl="fused")},
    {"model": "moe_nano", "precision": "bf16-true", "optimizer": OptimizerConfig(kind="sgd")},
    {
        "model": "llama_nano",
        "model_n_layers": 5,
        "attention": "eager",
        "precision": "bf16-mixed",
        "optimizer": OptimizerConfig(impl="forloop"),
        "data": DataConfig(kind="packed"),
        "seq_len": 48,
    },
]


def _is_reentrant(cell: Cell) -> bool:
    """Such a checkpoint's inputs outlive backward, and go in an order that only the real graph has."""
    return bool(cell.config.policy.options.get("use_reentrant"))


def _refused(cell: Cell) -> bool:
    """As a composed configuration is, before anything starts."""
    try:
        check_policy(cell)
    except Unsupported:
        return True
    return False


CELLS = [cell for w in WORKLOADS for p in POLICIES if not _refused(cell := make_cell(policy=p, **w))]


def _measured(cell: Cell) -> tuple[dict[str, float], dict[str, Any]]:
    memory, flops = (measure(cell, name, 0, make_session()) for name in ("memory", "flops"))
    pairs = zip(memory.detail["entries"], flops.detail["entries"], strict=True)
    entries = [kept | worked for kept, worked in pairs]
    return memory.figures | flops.figures, memory.detail | flops.detail | {"entries": entries}


@pytest.mark.parametrize("cell", CELLS, ids=lambda c: f"{c.policy_label} {c.workload_label}")
def test_the_prediction_is_the_measurement(cell: Cell) -> None:
    try:
        figures, detail = _measured(cell)
    except Unsupported:
        with pytest.raises(Unsupported):
            predict_cell(cell.config)
        return
    predicted = predict_cell(cell.config)
    assert predicted.figures == figures
    own = {"sources", "traced_blocks", "meter"} | ({"live_bytes"} if _is_reentrant(cell) else set())
    assert {k: v for k, v in predicted.detail.items() if k not in own} == {
        k: v for k, v in detail.items() if k not in own
    }
    assert predicted.detail["sources"].keys() == predicted.figures.keys()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    policy=st.sampled_from(POLICIES),
    model=st.sampled_from(["llama_nano", "gpt_nano", "moe_nano"]),
    depth=st.integers(4, 13),
    seq_len=st.integers(8, 40),
    impl=st.sampled_from(["foreach", "fused", "forloop"]),
)
def test_composed_and_whole_are_the_same(
    policy: dict[str, Any], model: str, depth: int, seq_len: int, impl: str
) -> None:
    cell = make_cell(
        model, policy, model_n_layers=depth, seq_len=seq_len, optimizer=OptimizerConfig(impl=impl)
    )
    if _refused(cell):
        return
    composed, whole = _predicted(cell), _predicted(cell, whole=True)
    assert composed.figures == whole.figures
    own = {"traced_blocks"} | ({"live_bytes"} if _is_reentrant(cell) else set())
    for name in whole.detail.keys() - own:
        assert composed.detail[name] == whole.detail[name], name


def _predicted(cell: Cell, *, whole: bool = False) -> Measurement:
    try:
        return predict_cell(cell.config, whole=whole)
    except Unsupported as problem:
        return Measurement(status="unsupported", error={"message": str(problem)})


def test_like_blocks_are_traced_once_for_all() -> None:
    deep = make_cell("llama_nano", {"family": "full"}, model_n_layers=64).config
    assert predict_cell(deep).detail["traced_blocks"] == 3


def test_a_compiled_cell_is_refused() -> None:
    cell = make_cell("llama_nano", {"family": "none"}, compile="model")
    with pytest.raises(Unsupported, match="compile=model"):
        predict_cell(cell.config)

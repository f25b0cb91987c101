"""A few cells of no list, predicted and measured; tests/benchmarks/bench_prediction_error.py has hundreds."""

import pytest
from make_cell import make_session
from random_cells import random_cells

from suite.cell import Cell
from suite.errors import Unsupported
from suite.measure import measure
from suite.predict.cell import predict_cell

_SEED, _COUNT = 20, 12


@pytest.mark.parametrize(
    "cell", list(random_cells(_SEED, _COUNT)), ids=lambda c: f"{c.policy_label} {c.workload_label}"
)
def test_a_random_cell_is_predicted_to_the_byte(cell: Cell) -> None:
    try:
        measured = measure(cell, "memory", 0, make_session()).figures
    except Unsupported:
        with pytest.raises(Unsupported):
            predict_cell(cell.config)
        return
    predicted = predict_cell(cell.config).figures
    for name in ("peak_bytes", "saved_bytes"):
        assert predicted[name] - measured[name] == 0, name


def test_the_same_seed_draws_the_same_cells() -> None:
    first, again = ([c.id for c in random_cells(_SEED, _COUNT)] for _ in range(2))
    assert first == again
    assert len(set(first)) == _COUNT

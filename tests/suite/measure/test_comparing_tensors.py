"""Differences between gradients: found, measured, named."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suite.measure.compare import compare_tensors
from suite.measure.parity import Outcome, judge
from suite.policies import Tolerance

BITWISE = Tolerance(0.0, "the same kernels")
ROUNDED = Tolerance(1e-4, "sums in another order")


def _outcome(**changes: object) -> Outcome:
    ones = torch.ones(4)
    fields: dict[str, object] = {
        "loss": torch.tensor(1.0),
        "gradients": {"w": ones, "v": ones},
        "buffers": {"running_mean": ones},
        "random_states": [torch.zeros(2)],
        "forwards": [1],
    }
    return Outcome(**{**fields, **changes})  # type: ignore[arg-type]


WRONG = [
    ({"loss": torch.tensor(1.5)}, "1 of 1 loss differ"),
    ({"gradients": {"w": torch.ones(4)}}, "v the most: missing under the policy"),
    ({"gradients": {"w": torch.ones(4), "v": torch.ones(4) + 1e-7}}, "1 of 2 gradients differ, v"),
    ({"gradients": {"w": torch.ones(4), "v": torch.full((4,), math.nan)}}, "not finite"),
    ({"gradients": {"w": torch.ones(4), "v": torch.ones(2, 2)}}, r"\[2, 2\]"),
    ({"buffers": {"running_mean": torch.full((4,), 1.9)}}, "running_mean"),
    ({"random_states": [torch.ones(2)]}, "random state"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=str)
def test_anything_that_differs_is_wrong_and_named(changes: dict[str, object], message: str) -> None:
    found = judge(_outcome(), _outcome(**changes), BITWISE)
    assert found.status == "wrong"
    assert found.error is not None
    import re

    assert re.search(message, found.error["message"])
    assert all(math.isfinite(v) for v in found.figures.values())


def test_the_same_step_is_ok() -> None:
    found = judge(_outcome(), _outcome(), BITWISE)
    assert (found.status, found.error) == ("ok", None)


def test_an_accelerator_may_round_within_a_stated_tolerance() -> None:
    near = _outcome(gradients={"w": torch.ones(4), "v": torch.ones(4) * (1 + 1e-5)})
    assert judge(_outcome(), near, BITWISE).status == "wrong"
    found = judge(_outcome(), near, ROUNDED)
    assert found.status == "ok"
    assert found.detail["bitwise"] is False
    far = _outcome(gradients={"w": torch.ones(4), "v": torch.ones(4) * 1.01})
    assert judge(_outcome(), far, ROUNDED).status == "wrong"


@given(scale=st.floats(1e-3, 1e3), shift=st.floats(1e-6, 1.0))
def test_the_relative_difference_does_not_depend_on_the_scale(scale: float, shift: float) -> None:
    base = torch.ones(8, dtype=torch.float64)
    (one,) = compare_tensors({"g": base}, {"g": base * (1 + shift)}, 0.0)
    (other,) = compare_tensors({"g": base * scale}, {"g": base * scale * (1 + shift)}, 0.0)
    assert one.relative == pytest.approx(shift, rel=1e-6)
    assert other.relative == pytest.approx(one.relative, rel=1e-6)

"""Rotations: relative, norm-preserving, exact at long positions."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suite.models.rope import rotate, rotation_tables


def rotated(vector, position, theta=10000.0):
    cos, sin = rotation_tables(torch.tensor([[position]]), vector.shape[-1], theta)
    return rotate(vector.view(1, 1, 1, -1), cos, sin).flatten()


@given(
    q_at=st.integers(0, 4000),
    k_at=st.integers(0, 4000),
    shift=st.integers(0, 4000),
    half=st.integers(1, 16),
)
def test_products_depend_on_the_distance_only(q_at, k_at, shift, half):
    generator = torch.Generator().manual_seed(half)
    q, k = torch.randn(2, 2 * half, generator=generator)
    here = rotated(q, q_at) @ rotated(k, k_at)
    there = rotated(q, q_at + shift) @ rotated(k, k_at + shift)
    assert there.item() == pytest.approx(here.item(), abs=5e-3 * max(1.0, (q.norm() * k.norm()).item()))


def test_position_zero_is_the_identity_and_lengths_stay():
    x = torch.randn(3, 7, 5, 8, generator=torch.Generator().manual_seed(0))
    cos, sin = rotation_tables(torch.arange(7)[None], 8, 500000.0)
    turned = rotate(x, cos, sin)
    assert torch.equal(turned[:, 0], x[:, 0])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


def test_tables_are_float32_whatever_the_default():
    torch.set_default_dtype(torch.bfloat16)
    try:
        cos, sin = rotation_tables(torch.tensor([[100_000]]), 4, 10000.0)
    finally:
        torch.set_default_dtype(torch.float32)
    assert cos.dtype == sin.dtype == torch.float32
    assert cos[0, 0, 0].tolist() == pytest.approx([math.cos(1e5), math.cos(1e3)], abs=1e-5)


def test_the_result_has_the_dtype_of_its_input():
    cos, sin = rotation_tables(torch.arange(3)[None], 4, 10000.0)
    assert rotate(torch.ones(1, 3, 2, 4, dtype=torch.bfloat16), cos, sin).dtype == torch.bfloat16

"""The grouped product as an operator: values, gradients, fake tensors, autocast and FLOPs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from suite.models import expert_mm as module
from suite.models.expert_mm import expert_mm

OPERATOR = torch.ops.recompute_suite.expert_mm.default
WEIGHT_GRAD = torch.ops.recompute_suite.expert_mm_weight_grad.default


def make_inputs(counts, width=3, out=4, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(counts), width, generator=generator, dtype=dtype)
    weight = torch.randn(len(counts), width, out, generator=generator, dtype=dtype)
    return x.requires_grad_(), weight.requires_grad_(), torch.tensor(counts).cumsum(0).int()


def one_by_one(x, weight, counts):
    return torch.cat([rows @ w for rows, w in zip(x.split(counts), weight, strict=True)])


COUNTS = st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any)


@settings(max_examples=40, deadline=None)
@given(counts=COUNTS, width=st.integers(1, 6), out=st.integers(1, 6))
def test_is_each_experts_product_with_its_gradients(counts, width, out):
    x, weight, offsets = make_inputs(counts, width, out)
    product = expert_mm(x, weight, offsets)
    torch.testing.assert_close(product, one_by_one(x, weight, counts))
    grad = torch.randn_like(product)
    found = torch.autograd.grad(product, (x, weight), grad)
    expected = torch.autograd.grad(one_by_one(x, weight, counts), (x, weight), grad)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("counts", [[2, 3, 1], [0, 4, 0, 1], [3]])
def test_first_and_second_derivatives(counts):
    x, weight, offsets = make_inputs(counts)
    assert torch.autograd.gradcheck(lambda x, w: expert_mm(x, w, offsets), (x, weight))
    assert torch.autograd.gradgradcheck(lambda x, w: expert_mm(x, w, offsets), (x, weight))


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_a_gradient_that_nobody_asked_for_is_not_computed(wanted):
    x, weight, offsets = make_inputs([2, 1])
    x.requires_grad_(wanted[0]), weight.requires_grad_(wanted[1])
    product = expert_mm(x, weight, offsets)
    with FlopCounterMode(display=False) as counter:
        product.sum().backward()
    assert counter.get_total_flops() == 2 * 3 * 3 * 4
    assert (x.grad is not None, weight.grad is not None) == wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_operators_are_registered_as_torch_wants_them(dtype):
    x, weight, offsets = make_inputs([2, 0, 3], dtype=dtype)
    # Tolerances for float32; the other tests hold the values.
    torch.library.opcheck(OPERATOR, (x, weight, offsets), rtol=1e-2, atol=1e-2)
    grad = torch.randn(5, 4, dtype=dtype)
    torch.library.opcheck(WEIGHT_GRAD, (x.detach(), grad, offsets), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fake_tensors_take_every_dtype(dtype):
    with FakeTensorMode():
        x = torch.empty(6, 3, dtype=dtype, requires_grad=True)
        weight = torch.empty(2, 3, 4, dtype=dtype, requires_grad=True)
        out = expert_mm(x, weight, torch.empty(2, dtype=torch.int32))
        assert (out.shape, out.dtype) == ((6, 4), dtype)
        out.sum().backward()
    assert (weight.grad.shape, x.grad.shape) == (weight.shape, x.shape)


@pytest.mark.parametrize("counts", [[6, 0, 0], [2, 2, 2], [0, 1, 5]])
@pytest.mark.parametrize("fake", [False, True])
def test_flops_are_exact_and_independent_of_the_routing(counts, fake):
    x, weight, offsets = make_inputs(counts, width=3, out=4)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    if fake:
        x, weight, offsets = (mode.from_tensor(t) for t in (x, weight, offsets))
    with FlopCounterMode(display=False) as counter:
        expert_mm(x, weight, offsets).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 6 * 3 * 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_as_it_casts_mm(dtype):
    x, weight, offsets = make_inputs([2, 2], dtype=torch.float32)
    with torch.autocast("cpu", dtype=dtype, cache_enabled=False):
        out, expected = expert_mm(x, weight, offsets), one_by_one(x, weight, [2, 2])
    assert out.dtype == expected.dtype == dtype
    assert torch.equal(out, expected)
    gradients = torch.autograd.grad(out.sum(), (x, weight))
    assert [g.dtype for g in gradients] == [torch.float32, torch.float32]


def test_autocast_leaves_float64_alone_as_it_does_for_mm():
    x, weight, offsets = make_inputs([2, 2])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert expert_mm(x, weight, offsets).dtype == (x @ weight[0]).dtype == torch.float64


@pytest.mark.parametrize("wanted", ["x", "weight"])
def test_a_region_that_ends_with_it_does_not_run_it_again(wanted):
    """What torch's own products give: their inputs are saved before they run, and the replay stops there."""
    x, weight, offsets = make_inputs([2, 3])
    (weight if wanted == "x" else x).requires_grad_(False)

    def run(x, weight):
        return expert_mm(x.exp(), weight, offsets)

    out = checkpoint(run, x, weight, use_reentrant=False)
    with FlopCounterMode(display=False) as counter:
        out.sum().backward()
    assert counter.get_total_flops() == 2 * 5 * 3 * 4


def test_rows_that_belong_to_no_expert_are_refused():
    x, weight, _ = make_inputs([2, 2])
    with pytest.raises(ValueError, match="offsets end at 3, there are 4 rows"):
        expert_mm(x, weight, torch.tensor([1, 3], dtype=torch.int32))


TAKES = [
    ("cuda", torch.bfloat16, (8, 16), (9, 0), True),
    ("cuda", torch.bfloat16, (8, 12), (9, 0), False),
    ("cuda", torch.bfloat16, (8, 16), (7, 5), False),
    ("cuda", torch.float32, (8, 16), (9, 0), False),
    ("cpu", torch.bfloat16, (8, 16), (9, 0), False),
]


@pytest.mark.parametrize(("device", "dtype", "widths", "capability", "expected"), TAKES)
def test_where_torchs_grouped_product_is_used(device, dtype, widths, capability, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.nn.functional, "grouped_mm", None, raising=False)
    with FakeTensorMode():
        x = torch.empty(4, widths[0], dtype=dtype, device=device)
    assert module._grouped_mm_takes(x, widths) is expected
    monkeypatch.delattr(torch.nn.functional, "grouped_mm")
    assert module._grouped_mm_takes(x, widths) is False


@pytest.mark.skipif(not hasattr(torch.nn.functional, "grouped_mm"), reason="torch without grouped_mm")
def test_torchs_grouped_product_gives_the_same(monkeypatch):
    """On the CPU it can be called with real tensors, so that its layout and offsets are tested here too."""
    x, weight, offsets = make_inputs([3, 0, 5], width=8, out=16, dtype=torch.bfloat16)

    def run():
        product = expert_mm(x, weight, offsets)
        return (product, *torch.autograd.grad(product.square().sum(), (x, weight)))

    expected = run()
    monkeypatch.setattr(module, "_grouped_mm_takes", lambda *_: True)
    found = run()
    torch.testing.assert_close(found, expected)
    assert not found[2][1].any()


def test_an_expert_without_rows_has_no_gradient_whatever_the_kernel_leaves(monkeypatch):
    def leaves_garbage(a, b, *, offs):
        return torch.full((offs.shape[0], a.shape[0], b.shape[1]), float("nan"))

    monkeypatch.setattr(module, "_grouped_mm_takes", lambda *_: True)
    monkeypatch.setattr(torch.nn.functional, "grouped_mm", leaves_garbage, raising=False)
    x, grad = torch.ones(3, 2), torch.ones(3, 4)
    found = WEIGHT_GRAD(x, grad, torch.tensor([2, 2, 3], dtype=torch.int32))
    assert found.isnan().all(dim=(1, 2)).tolist() == [True, False, True]
    assert not found[1].any()

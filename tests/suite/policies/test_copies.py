"""Copies in place of saved tensors: of storages, once, and of nothing that is held anyway."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from suite.policies.copies import Handle, restore, storages, version_of
from suite.policies.entries import Entry
from suite.policies.host import HostStore

CPU = torch.device("cpu")


def make_store(min_bytes: int = 0, cap_bytes: int | None = None) -> HostStore:
    return HostStore(CPU, min_bytes, cap_bytes=cap_bytes)


def test_views_of_one_storage_are_one_copy_and_come_back_as_they_were() -> None:
    store, entry = make_store(), Entry("e")
    fused = torch.randn(4, 6, 8)
    views = [fused, fused.transpose(0, 2), fused[:, 2:4], fused[1, :, ::3], fused.view(torch.int32)]
    kept = [store.keep(view, entry) for view in views]
    assert all(isinstance(k, Handle) for k in kept)
    assert (entry.hits, entry.host_bytes) == (1, fused.nbytes)
    assert store.ledger.live_bytes == fused.nbytes
    back = [restore(k) for k in kept]
    for view, again in zip(views, back, strict=True):
        assert torch.equal(view, again)
        assert view.stride() == again.stride()
        assert view.dtype == again.dtype
    assert len(storages(back)) == 1
    assert storages(back) != storages([fused])
    assert store.ledger.returned_bytes == fused.nbytes
    del kept
    assert store.ledger.live_bytes == 0


def test_a_view_of_a_large_storage_sends_the_storage() -> None:
    store, entry = make_store(), Entry("e")
    large = torch.randn(100, 8)
    kept = store.keep(large[7], entry)
    assert entry.host_bytes == large.nbytes
    assert torch.equal(restore(kept), large[7])


def test_an_expanded_tensor_sends_what_it_stores() -> None:
    store, entry = make_store(), Entry("e")
    expanded = torch.randn(3, 1).expand(3, 50)
    again = restore(store.keep(expanded, entry))
    assert entry.host_bytes == 12
    assert again.stride() == (1, 0)
    assert torch.equal(again, expanded)


def test_a_storage_that_was_written_to_since_is_copied_anew() -> None:
    store, entry = make_store(), Entry("e")
    x = torch.ones(8)
    before = store.keep(x, entry)
    x.mul_(2)
    after = store.keep(x, entry)
    assert entry.hits == 2
    assert restore(before).tolist() == [1.0] * 8
    assert restore(after).tolist() == [2.0] * 8


def test_without_a_count_of_writes_there_is_one_version() -> None:
    x = torch.ones(8)
    before = version_of(x)
    x.mul_(2)
    assert version_of(x) == before + 1
    with torch.inference_mode():
        y = torch.ones(8)
    assert version_of(y) == 0


def test_a_second_backward_reads_again() -> None:
    store, entry = make_store(), Entry("e")
    x = torch.randn(8, 8, requires_grad=True)
    with saved_tensors_hooks(lambda t: store.keep(t, entry), restore):
        loss = (x.sin() * x.cos()).sum()
    (first,) = torch.autograd.grad(loss, x, retain_graph=True)
    (second,) = torch.autograd.grad(loss, x)
    assert torch.equal(first, second)
    assert store.ledger.returned_bytes == 2 * store.ledger.moved_bytes


def test_an_output_that_stays_does_not_hold_its_own_graph() -> None:
    import gc
    import weakref

    store, entry = make_store(min_bytes=10**6), Entry("e")
    gc.disable()
    try:
        x = torch.randn(8, requires_grad=True)
        with saved_tensors_hooks(lambda t: store.keep(t, entry), restore):
            y = x.exp()  # keeps its own output
        alive = weakref.ref(y.untyped_storage())
        del y
        assert alive() is None
    finally:
        gc.enable()


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("scale", torch.full((8,), 2.0))

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return self.linear(x).tanh() * self.scale * table


def test_parameters_buffers_and_what_blocks_share_stay() -> None:
    store, entry, module = make_store(), Entry("e"), Scaled()
    x, table = torch.randn(4, 8, requires_grad=True), torch.randn(4, 8, requires_grad=True)
    expected = torch.autograd.grad(module(x, table).sum(), [x, table, module.linear.weight])
    store.keep_for(module, entry)
    out = module(x, table)
    # x for the weight's gradient, tanh for its own, and the product that the table scales.
    assert entry.hits == 3
    assert entry.host_bytes == 3 * x.nbytes
    found = torch.autograd.grad(out.sum(), [x, table, module.linear.weight])
    assert all(map(torch.equal, expected, found))


def test_small_storages_stay_and_are_named() -> None:
    store, entry = make_store(min_bytes=1024), Entry("e")
    x = torch.randn(255)
    kept = store.keep(x, entry)
    assert isinstance(kept, torch.Tensor)
    assert kept.data_ptr() == x.data_ptr()
    assert isinstance(store.keep(torch.randn(256), entry), Handle)
    assert store.left() == ["1,020 B of float32, below policy.min_bytes=1.0 KiB"]


def test_what_the_host_has_no_room_for_stays_and_is_counted() -> None:
    store, entry = make_store(cap_bytes=100), Entry("e")
    first = store.keep(torch.randn(20), entry)
    second = store.keep(torch.randn(20), entry)
    assert isinstance(first, Handle)
    assert isinstance(second, torch.Tensor)
    assert store.ledger.over_cap_bytes == 80
    assert entry.hits == 1
    del first
    assert isinstance(store.keep(torch.randn(20), entry), Handle)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(4, 4, device="meta"),
        torch.randn(4, 4).to_sparse(),
        torch.randn(4, 4, dtype=torch.complex64).conj(),
    ],
    ids=["another device", "sparse", "conjugated"],
)
def test_what_a_storage_cannot_stand_for_stays(tensor: torch.Tensor) -> None:
    store, entry = make_store(), Entry("e")
    assert isinstance(store.keep(tensor, entry), torch.Tensor)
    assert entry.hits == 0


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8]),
    data=st.data(),
)
def test_any_view_comes_back_bit_for_bit(shape: list[int], dtype: torch.dtype, data: Any) -> None:
    store, entry = make_store(), Entry("e")
    base = torch.randint(0, 2, shape).to(dtype)
    view = base.permute(data.draw(st.permutations(range(len(shape)))))
    dim = data.draw(st.integers(0, len(shape) - 1))
    start = data.draw(st.integers(0, view.shape[dim] - 1))
    view = view.narrow(dim, start, view.shape[dim] - start)
    again = restore(store.keep(view, entry))
    assert torch.equal(again, view)
    assert again.stride() == view.stride()
    assert entry.host_bytes == base.nbytes

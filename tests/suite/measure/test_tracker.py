"""The tracker counts storages, from birth to their last reference."""

import gc

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from suite.measure.account import account_step
from suite.measure.tracker import MemoryTracker

KIB = 1024


def _live(tracker: MemoryTracker) -> int:
    return sum(e.sign * tracker.log.allocations[e.index].nbytes for e in tracker.log.events)


def test_views_and_aliases_count_once_and_frees_are_seen() -> None:
    tracker = MemoryTracker("cpu")
    with tracker:
        a = torch.zeros(256)
        b = a.view(16, 16).t()
        assert _live(tracker) == KIB
        del a
        assert _live(tracker) == KIB
        del b
        assert _live(tracker) == 0
    assert [e.sign for e in tracker.log.events] == [1, -1]


def test_a_free_needs_no_garbage_collector() -> None:
    tracker = MemoryTracker("cpu")
    gc.disable()
    try:
        with tracker:
            x = torch.ones(256, requires_grad=True)
            (x * x).sum().backward()
            x.grad = None
            del x
        assert _live(tracker) == 0
    finally:
        gc.enable()


def test_resizing_in_place_replaces_the_storage() -> None:
    tracker = MemoryTracker("cpu")
    with tracker:
        a = torch.zeros(256)
        a.resize_(512)
        assert _live(tracker) == 2 * KIB
        del a
        assert _live(tracker) == 0


def test_only_the_device_asked_for_is_counted() -> None:
    tracker = MemoryTracker("cuda")
    with tracker:
        kept = torch.zeros(256)
    assert kept.numel() == 256
    assert tracker.log.events == []


def test_a_mark_names_what_was_there_before() -> None:
    weight = torch.zeros(256)
    tracker = MemoryTracker("cpu")
    tracker.mark(weight, "parameter", "w")
    with tracker:
        tracker.begin_step()
        tracker.begin_phase("forward")
        y = weight + 1
        tracker.begin_phase("loss")
        z = y * 2
        tracker.begin_phase("idle")
    account = account_step(tracker.log, 0)
    assert account.start_by_kind == {"parameter": KIB}
    assert account.static_bytes == KIB
    assert account.saved_bytes == KIB
    assert account.peak_bytes == 3 * KIB
    assert account.peak_phase == "loss"
    assert account.phase_ends == {"forward": 2 * KIB, "loss": 3 * KIB}
    assert {t["kind"] for t in account.top_tensors()} == {"parameter", "activation"}
    assert z.numel() == 256


def test_the_peak_inside_a_step_is_found_with_what_was_alive() -> None:
    tracker = MemoryTracker("cpu")
    with tracker:
        tracker.begin_step()
        tracker.begin_phase("forward")
        small = torch.zeros(256)
        big = torch.zeros(1024)
        peak_shapes = {tuple(small.shape), tuple(big.shape)}
        del big
        late = torch.zeros(256)
        tracker.begin_phase("idle")
    account = account_step(tracker.log, 0)
    assert account.peak_bytes == 5 * KIB
    assert {tuple(t["shape"]) for t in account.top_tensors()} == peak_shapes
    assert [t["bytes"] for t in account.top_tensors()] == [4 * KIB, KIB]
    assert account.peak_bytes == max(live for _, live, _ in account.curve)
    assert late.numel() == 256


def test_selective_checkpointing_s_cache_is_counted() -> None:
    """Saved-tensor hooks do not see what the cache holds; the tracker must."""
    from suite.policies.entries import Entry
    from suite.policies.selective import OperatorRule, Selection

    def saved(operators: frozenset[str]) -> int:
        selection = Selection([OperatorRule(Entry("kept", operators=operators))])
        x = torch.ones(16, 16, requires_grad=True)
        tracker = MemoryTracker("cpu")
        with tracker:
            tracker.begin_step()
            tracker.begin_phase("forward")

            def block(t: torch.Tensor) -> torch.Tensor:
                return (t @ t).sin().cos()

            y = checkpoint(block, x, use_reentrant=False, context_fn=selection.contexts)
            tracker.begin_phase("loss")
            y.sum().backward()
            tracker.begin_phase("idle")
        return account_step(tracker.log, 0).saved_bytes

    assert saved(frozenset({"mm"})) == saved(frozenset({"conv2d"})) + KIB


def test_a_step_that_is_not_there_is_an_error() -> None:
    tracker = MemoryTracker("cpu")
    with pytest.raises(ValueError, match="step 0 of 0"):
        account_step(tracker.log, 0)

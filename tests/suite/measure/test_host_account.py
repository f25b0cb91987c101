"""Host memory in the account: apart from the device's, even where both are the same RAM."""

import torch

from suite.measure.account import account_step
from suite.measure.tracker import MemoryTracker
from suite.policies.host_ledger import HostLedger
from suite.policies.making import HOST, RESTORED, making, purpose

KIB = 1024


def test_copies_on_the_host_are_not_the_device_s() -> None:
    tracker = MemoryTracker("cpu")
    with tracker:
        with making(HOST):
            copy = torch.zeros(256)
            view = copy.view(16, 16)
        device = torch.zeros(256)
    assert [a.nbytes for a in tracker.log.allocations] == [KIB]
    assert view.numel() == device.numel() == copy.numel()


def test_what_comes_back_is_called_restored_and_counts_as_an_activation() -> None:
    tracker = MemoryTracker("cpu")
    with tracker:
        tracker.begin_step()
        tracker.begin_phase("backward")
        with making(RESTORED):
            back = torch.zeros(256)
        other = torch.zeros(512)
        tracker.begin_phase("idle")
    account = account_step(tracker.log, 0)
    assert account.composition() == {"restored": KIB, "activation_gradient": 2 * KIB}
    assert account.activation_bytes == 3 * KIB
    assert back.numel() + other.numel() == 768


def test_a_purpose_ends_with_its_context() -> None:
    with making(HOST):
        with making(RESTORED):
            assert purpose() == RESTORED
        assert purpose() == HOST
    assert purpose() == ""


def test_a_ledger_counts_per_step_and_keeps_what_is_live() -> None:
    ledger = HostLedger()
    ledger.moved(5)
    ledger.moved(7)
    ledger.freed(5)
    ledger.returned(7)
    ledger.over_cap(3)
    assert ledger.figures() == {
        "host_peak_bytes": 12,
        "host_moved_bytes": 12,
        "host_returned_bytes": 7,
        "host_over_cap_bytes": 3,
    }
    ledger.begin_step()
    assert ledger.live_bytes == 7
    assert ledger.figures() == {
        "host_peak_bytes": 7,
        "host_moved_bytes": 0,
        "host_returned_bytes": 0,
        "host_over_cap_bytes": 0,
    }


def test_ledgers_joined_have_one_peak() -> None:
    first, second, third = HostLedger(), HostLedger(), HostLedger()
    total = first.joined(second).joined(third)
    first.moved(5)
    first.freed(5)
    second.moved(4)
    third.moved(3)
    assert (total.peak_bytes, total.moved_bytes, total.live_bytes) == (7, 12, 7)
    assert (first.peak_bytes, second.peak_bytes, third.peak_bytes) == (5, 4, 3)

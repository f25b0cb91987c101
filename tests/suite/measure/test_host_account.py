"""Host memory in the account: apart from the device's, even where both are the same RAM."""

import gc

import torch
from make_cell import make_cell, make_session

from suite.measure import measure
from suite.measure.account import account_step
from suite.measure.tracker import MemoryTracker
from suite.policies.host_ledger import HostLedger
from suite.policies.making import HOST, RESTORED, making, purpose

KIB = 1024
SESSION = make_session()
# u of llama_nano: 2 sequences of 32 tokens of 96 floats.
U = 2 * 32 * 96 * 4


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


def test_the_memory_pass_states_what_is_on_the_host() -> None:
    policy = {"family": "offload", "what": "block_inputs"}
    found = measure(make_cell(policy=policy), "memory", 0, SESSION)
    figures = found.figures
    # Three of four blocks, all of whose inputs are there when the forward ends.
    assert figures["host_moved_bytes"] == figures["host_peak_bytes"] == 3 * U
    assert figures["host_returned_bytes"] == 3 * U
    assert figures["host_over_cap_bytes"] == 0
    (entry,) = found.detail["entries"]
    assert (entry["name"], entry["hits"], entry["host_bytes"]) == ("block_inputs", 3, 3 * U)
    full = measure(make_cell(policy={"family": "full"}), "memory", 0, SESSION)
    assert figures["saved_bytes"] == full.figures["saved_bytes"] - 3 * U
    assert full.detail["entries"][0]["host_bytes"] == 0
    assert not any(name.startswith("host_") for name in full.figures)


def test_what_is_brought_back_is_at_the_peak_by_its_own_name() -> None:
    policy = {"family": "offload", "what": "saved", "keep_last": 0}
    found = measure(make_cell(policy=policy, seq_len=256, model_vocab_size=4), "memory", 0, SESSION)
    assert found.detail["peak_phase"] == "backward"
    assert found.detail["peak_composition"]["restored"] > 0


def test_parts_of_an_assignment_share_one_account() -> None:
    offload = {"family": "offload", "keep_last": 0}
    policy = {"family": "assignment", "blocks": {"0": offload, "1": "full", "2": offload}}
    found = measure(make_cell(policy=policy), "memory", 0, SESSION)
    assert found.figures["host_moved_bytes"] == found.figures["host_peak_bytes"] == 2 * U


def test_host_memory_is_free_again_without_the_garbage_collector() -> None:
    from suite.measure.flops import first_batch
    from suite.measure.setup import build_subject

    for what in ("block_inputs", "saved", "selective", "module_inputs"):
        subject = build_subject(
            make_cell(policy={"family": "offload", "what": what}).config, instrumented=True
        )
        host = subject.apply_policy().host
        assert host is not None
        gc.disable()
        try:
            loss = subject.model(first_batch(subject.config).tokens).sum()
            assert host.live_bytes > 0
            loss.backward()
            del loss
            assert host.live_bytes == 0, what
        finally:
            gc.enable()

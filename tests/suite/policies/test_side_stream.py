"""The order of copies beside the device's compute, without a device: streams and events that take notes."""

from typing import Any

import pytest
import torch

from suite.policies import host as host_module
from suite.policies.copies import restore
from suite.policies.entries import Entry
from suite.policies.host import HostStore, Lane, SideStream, lane_of

CPU = torch.device("cpu")


class FakeEvent:
    """Is done when the test says so."""

    def __init__(self, name: str) -> None:
        self.name, self.done = name, False

    def query(self) -> bool:
        return self.done


class FakeStream:
    """Notes what is asked of it, in ``notes`` that two streams share."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes
        self.events: list[FakeEvent] = []

    def wait_stream(self, other: "FakeStream") -> None:
        self.notes.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event: FakeEvent) -> None:
        self.notes.append(f"{self.name} waits for {event.name}")

    def record_event(self) -> FakeEvent:
        self.events.append(FakeEvent(f"copy {len(self.events)}"))
        return self.events[-1]

    def __enter__(self) -> "FakeStream":
        self.notes.append(f"on {self.name}")
        return self

    def __exit__(self, *_: Any) -> None:
        self.notes.append(f"off {self.name}")


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def side(notes: list[str], monkeypatch: pytest.MonkeyPatch) -> FakeStream:
    compute = FakeStream("compute", notes)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda: compute)
    return FakeStream("side", notes)


@pytest.fixture
def store(side: FakeStream, monkeypatch: pytest.MonkeyPatch) -> HostStore:
    monkeypatch.setattr(host_module, "lane_of", lambda _: SideStream(side))  # type: ignore[arg-type]
    return HostStore(CPU, 0, pinned=False)


def alive(tensor: torch.Tensor) -> Any:
    import weakref

    return weakref.ref(tensor.untyped_storage())


class Double(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp() * 2


def test_a_copy_waits_for_what_is_queued_and_compute_waits_for_the_copy(
    side: FakeStream, notes: list[str]
) -> None:
    lane = SideStream(side)  # type: ignore[arg-type]
    done = lane.copy(torch.empty(4), torch.ones(4))
    assert notes == ["side waits for compute", "on side", "off side"]
    lane.wait(done)
    lane.wait(done)
    assert notes[3:] == ["compute waits for copy 0"]


def test_both_ends_are_held_until_the_copy_is_done_or_waited_for(side: FakeStream) -> None:
    lane = SideStream(side)  # type: ignore[arg-type]
    source, target = torch.ones(4), torch.empty(4)
    ends = alive(source), alive(target)
    lane.copy(target, source)
    del source, target
    assert all(end() is not None for end in ends)
    side.events[0].done = True
    lane.wait(lane.copy(torch.empty(1), torch.ones(1)))
    assert all(end() is None for end in ends)


def test_the_next_block_s_forward_hides_the_copies_of_the_one_before(
    store: HostStore, side: FakeStream, notes: list[str]
) -> None:
    blocks = [Double() for _ in range(3)]
    for block in blocks:
        store.keep_for(block, Entry("e"))
        store.follow(block)
    x = torch.ones(4, requires_grad=True)
    x = blocks[0](x)
    first = store._block._copies[0]
    assert first() is not None
    assert "compute waits for copy 0" not in notes
    x = blocks[1](x)
    assert notes[-1] == "compute waits for copy 0"
    x = blocks[2](x)
    assert notes[-1] == "compute waits for copy 1"
    notes.clear()
    x.sum().backward()
    waits = [note for note in notes if note.startswith("compute waits")]
    # The last block lets go of its own and fetches it; the others' are on their way a block ahead.
    assert waits == [f"compute waits for copy {n}" for n in (2, 3, 4, 5)]
    ahead = [note for note in notes if note == "on side" or note.startswith("compute")]
    assert ahead[:4] == ["compute waits for copy 2", "on side", "on side", "compute waits for copy 3"]


def test_a_tensor_that_changes_on_its_way_is_an_error(store: HostStore) -> None:
    blocks = [Double(), Double()]
    for block in blocks:
        store.keep_for(block, Entry("e"))
        store.follow(block)
    x = torch.zeros(4)
    kept = store.keep(x, Entry("e"))
    x.add_(1)
    with pytest.raises(RuntimeError, match=r"changed in place while it was being offloaded"):
        blocks[0](torch.ones(4, requires_grad=True))
    assert restore(kept).tolist() == [0.0] * 4


def test_without_an_accelerator_copies_are_made_at_once() -> None:
    lane = lane_of(CPU)
    assert type(lane) is Lane
    target = torch.empty(3)
    lane.wait(lane.copy(target, torch.ones(3)))
    assert target.tolist() == [1.0, 1.0, 1.0]
    assert not lane.asynchronous

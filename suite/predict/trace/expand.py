"""From the trace of a shallow trunk to that of the whole one: repeats are copied, event by event.

Every event of a stretch concerns a storage that was born in some stretch: of the same piece, of a piece
so many places before or after, or of an edge. A copy of the stretch concerns the same storages, counted
from its own place. That this adds up is checked on the way: what is freed must be alive and as large as
in the shallow trace, and in the end exactly what the loop still holds may be left.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from suite.measure.tracker import Allocation
from suite.predict.trace.forward_backward import RawTrace
from suite.predict.trace.pattern import Shape
from suite.predict.trace.recorder import Stretch

_BLOCK = re.compile(r"^blocks\.(\d+)")
# Kind, piece and number of a stretch: pieces are told apart by place, edges by number.
_Key = tuple[str, int]
_EDGE = "edge"


class NotComposable(Exception):
    """The trace of the shallow trunk does not say what happens in the whole one."""


@dataclass
class Expanded:
    """A forward and backward of the whole trunk.

    Attributes:
        allocations: what was born, as in a log.
        origin: of each, the shallow trace's allocation that it is a copy of.
        events: index of an allocation, and 1 for its birth or -1 for its end.
        phases: position in ``events`` and the phase that begins there.
    """

    allocations: list[Allocation] = field(default_factory=list)
    origin: list[int] = field(default_factory=list)
    events: list[tuple[int, int]] = field(default_factory=list)
    phases: list[tuple[int, str]] = field(default_factory=list)

    def alive(self) -> list[int]:
        """What is left at the end, in the order of birth."""
        freed = {index for index, sign in self.events if sign < 0}
        return [index for index in range(len(self.allocations)) if index not in freed]


def expand(raw: RawTrace, shape: Shape) -> Expanded:
    """Lay out the whole trunk's events.

    Raises NotComposable where a copy would free what is not alive, or something of another size.
    """
    return _Layout(raw, shape).run()


class _Layout:
    def __init__(self, raw: RawTrace, shape: Shape) -> None:
        self._raw, self._shape = raw, shape
        self._names = Renaming(shape)
        self._owners: dict[int, tuple[_Key, int]] = {}
        for number, stretch in enumerate(raw.stretches):
            births = [e.index for e in raw.log.events[stretch.begin : stretch.end] if e.sign > 0]
            self._owners.update({i: (_key(stretch, number), at) for at, i in enumerate(births)})
        # By stretch of the whole trunk, what was born in it, in order.
        self._born: dict[_Key, list[int]] = {}
        self._alive: set[int] = set()
        self._out = Expanded()

    def run(self) -> Expanded:
        phases: dict[int, list[str]] = {}
        for at, phase in self._raw.log.phase_starts:
            phases.setdefault(at, []).append(phase)
        for stretch, number, place in self._in_order():
            born = self._born.setdefault(_key(stretch, number) if place < 0 else (stretch.kind, place), [])
            for at in range(stretch.begin, stretch.end):
                if place < 0:  # phases begin at the edges
                    self._begin(phases.pop(at, ()))
                event = self._raw.log.events[at]
                if event.sign > 0:
                    self._bear(event.index, place, born)
                else:
                    for index in self._concerned(event.index, place):
                        self._free(index, event.index)
            if place < 0:
                self._begin(phases.pop(stretch.end, ()))
        return self._out

    def _begin(self, phases: "list[str] | tuple[()]") -> None:
        self._out.phases += [(len(self._out.events), phase) for phase in phases]

    def _in_order(self) -> Iterator[tuple[Stretch, int, int]]:
        """Each stretch to lay out, its number, and the place of the whole trunk, -1 at an edge."""
        found = {(s.kind, s.piece): (s, n) for n, s in enumerate(self._raw.stretches)}
        places = range(len(self._shape.stands_for))
        done = set()
        for number, stretch in enumerate(self._raw.stretches):
            if stretch.kind == _EDGE:
                yield stretch, number, -1
            elif stretch.kind not in done:
                done.add(stretch.kind)
                for place in places if stretch.kind == "forward" else reversed(places):
                    key = (stretch.kind, self._shape.stands_for[place])
                    if key not in found:
                        raise NotComposable(f"{stretch.kind} of piece {key[1]} was not seen")
                    yield *found[key], place

    def _bear(self, index: int, place: int, born: list[int]) -> None:
        new = len(self._out.allocations)
        allocation = self._raw.log.allocations[index]
        self._out.allocations.append(self._names.renamed(allocation, place))
        self._out.origin.append(index)
        self._out.events.append((new, 1))
        self._alive.add(new)
        born.append(new)

    def _free(self, new: int, index: int) -> None:
        whole, shallow = self._out.allocations[new], self._raw.log.allocations[index]
        if new not in self._alive or whole.nbytes != shallow.nbytes:
            raise NotComposable(
                f"a copy frees {whole.nbytes} bytes of {whole.operator} for {shallow.operator}"
            )
        self._alive.remove(new)
        self._out.events.append((new, -1))

    def _concerned(self, index: int, place: int) -> list[int]:
        """What the end of the shallow trace's allocation means, seen from ``place``."""
        if index not in self._owners:
            raise NotComposable("something from before the step is freed")
        (kind, piece), ordinal = self._owners[index]
        if kind == _EDGE:
            return [self._at((kind, piece), ordinal)]
        if place < 0:
            return [self._at((kind, whole), ordinal) for whole in self._names.copies[piece]]
        return [self._at((kind, self._names.place_near(place, piece)), ordinal)]

    def _at(self, key: _Key, ordinal: int) -> int:
        born = self._born.get(key, [])
        if ordinal >= len(born):
            raise NotComposable(f"{key[0]} of place {key[1]} bears too few storages")
        return born[ordinal]


def _key(stretch: Stretch, number: int) -> _Key:
    return (_EDGE, number) if stretch.kind == _EDGE else (stretch.kind, stretch.piece)


class Renaming:
    """Block indices of the shallow trunk to those of the whole one."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.copies: dict[int, list[int]] = {}
        for place, piece in enumerate(shape.stands_for):
            self.copies.setdefault(piece, []).append(place)
        self._piece_of = {
            block: (p, i) for p, piece in enumerate(shape.reduced) for i, block in enumerate(piece)
        }
        self._known: dict[tuple[str, int], str] = {}

    def piece_of(self, block: int) -> int:
        """The shallow trunk's piece that its block is in."""
        return self._piece_of[block][0]

    def places_of(self, name: str) -> list[int]:
        """The places that a name of the shallow trunk stands for; an edge's for all that is in no block."""
        found = _BLOCK.match(name)
        return [-1] if found is None else self.copies[self.piece_of(int(found[1]))]

    def place_near(self, place: int, piece: int) -> int:
        """Where the shallow trunk's ``piece`` is, seen from a copy at ``place``."""
        return place + piece - self._shape.stands_for[place]

    def name(self, name: str, place: int) -> str:
        """``blocks.7.attn`` from ``blocks.1.attn``, seen from ``place``; -1: from an edge."""
        known = self._known.get((name, place))
        if known is None:
            known = self._known[name, place] = self._name(name, place)
        return known

    def _name(self, name: str, place: int) -> str:
        found = _BLOCK.match(name)
        if found is None:
            return name
        piece, within = self._piece_of[int(found[1])]
        there = self.copies[piece][-1] if place < 0 else self.place_near(place, piece)
        whole = self._shape.pieces[there]
        if within >= len(whole):
            raise NotComposable(f"piece {there} is shorter than {piece}")
        return f"blocks.{whole[within]}{name[found.end() :]}"

    def renamed(self, allocation: Allocation, place: int) -> Allocation:
        """The allocation under its names in the whole trunk."""
        module, name = self.name(allocation.module, place), self.name(allocation.name, place)
        if module == allocation.module and name == allocation.name:
            return allocation
        return replace(allocation, module=module, name=name)

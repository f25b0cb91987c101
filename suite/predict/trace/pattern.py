"""Which blocks of a trunk a policy treats alike, and a shallower trunk in which the same happens.

A *piece* is what a policy cannot take apart: a block, or the blocks of a segment. Pieces of one label run
the same operators and keep the same tensors, given the same neighbours. Where a word of labels repeats,
a few repeats show all there is: how it begins, how it goes on and how it ends.
"""

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from suite.config.schema import CellConfig, PolicyConfig
from suite.policies import make_policy
from suite.policies.assignment import Assignment
from suite.policies.blocks import Blocks
from suite.policies.offload import Offload
from suite.policies.segments import Segments

# Longer words than this are traced as they are: few policies have any.
_LONGEST_WORD = 8


@dataclass(frozen=True)
class Part:
    """A policy and the pieces that it is for.

    Attributes:
        policy: treats each piece alike, whatever their number, but for those that ``special`` labels.
        pieces: block indices of each.
        prefix: what the names of its rules begin with.
        special: how many of the last pieces are treated in a way of their own.
    """

    policy: PolicyConfig
    pieces: tuple[tuple[int, ...], ...]
    prefix: str = ""
    special: int = 0


@dataclass(frozen=True)
class Shape:
    """A trunk and its shallower stand-in.

    Attributes:
        parts: the policies of the stand-in, over its own block indices; None for the cell's own policy.
        pieces: block indices of the whole trunk's pieces, in order.
        reduced: the same of the stand-in.
        stands_for: of each piece of the whole trunk, the index of the stand-in's that it is like.
    """

    parts: tuple[Part, ...] | None
    pieces: tuple[tuple[int, ...], ...]
    reduced: tuple[tuple[int, ...], ...]
    stands_for: tuple[int, ...]

    @property
    def depth(self) -> int:
        """How many blocks the stand-in has."""
        return sum(map(len, self.reduced))


def shape_of(config: CellConfig, ends: int = 1) -> Shape | None:
    """The stand-in for the cell's trunk; None where it has to be traced whole.

    ``ends`` repeats are taken to be different from those in the middle at the beginning, and as many at
    the end.
    """
    depth = config.model.n_layers
    parts = None if config.compile != "none" else parts_of(config.policy, depth)
    if parts is None:
        return None
    labels: dict[tuple[int, ...], Hashable] = {}
    for number, part in enumerate(parts):
        for place, piece in enumerate(part.pieces):
            from_end = len(part.pieces) - place
            labels[piece] = (number, len(piece), from_end if from_end <= part.special else 0)
    named = {index for piece in labels for index in piece}
    labels |= {(index,): None for index in range(depth) if index not in named}
    pieces = tuple(sorted(labels))
    if any(b - a != 1 for piece in pieces for a, b in itertools.pairwise(piece)):
        return None  # a segment of an assignment with another policy's block inside
    kept, stands_for = compress([labels[piece] for piece in pieces], ends)
    reduced, renamed, next_block = [], {}, 0
    for place in kept:
        piece = pieces[place]
        new = tuple(range(next_block, next_block + len(piece)))
        reduced.append(new)
        renamed[piece] = new
        next_block += len(piece)
    shallow = tuple(
        Part(p.policy, tuple(renamed[piece] for piece in p.pieces if piece in renamed), p.prefix, p.special)
        for p in parts
    )
    return Shape(shallow, pieces, tuple(reduced), stands_for)


def parts_of(policy: PolicyConfig, depth: int) -> list[Part] | None:
    """The policy over a trunk of ``depth`` blocks, part by part; None where all blocks differ."""
    return _parts(policy, tuple(range(depth)), "")


def _parts(policy: PolicyConfig, blocks: Sequence[int], prefix: str) -> list[Part] | None:
    family = make_policy(policy)
    singles = tuple((index,) for index in blocks)
    if isinstance(family, Assignment):
        return _assigned(family, blocks)
    if isinstance(family, Blocks):
        chosen = tuple((blocks[i],) for i in family.selected(len(blocks)))
        return [Part(PolicyConfig(policy.family, {"fraction": 1.0}), chosen, prefix)]
    if isinstance(family, Segments):
        return _segments(policy, family, blocks, prefix)
    if isinstance(family, Offload):
        if family.config.host_cap is not None:
            return None  # how many blocks fit depends on all before
        return [Part(policy, singles, prefix, family.config.keep_last)]
    return [Part(policy, singles, prefix)]


def _segments(policy: PolicyConfig, family: Segments, blocks: Sequence[int], prefix: str) -> list[Part]:
    spans = [tuple(blocks[i] for i in span) for span in family.spans(len(blocks))]
    by_length: dict[int, list[tuple[int, ...]]] = {}
    for span in spans:
        by_length.setdefault(len(span), []).append(span)
    return [
        Part(PolicyConfig(policy.family, {"n": length}), tuple(some), prefix)
        for length, some in by_length.items()
    ]


def _assigned(family: Assignment, blocks: Sequence[int]) -> list[Part] | None:
    found: list[Part] = []
    for policy, indices in family.parts(len(blocks)):
        parts = _parts(policy, [blocks[i] for i in indices], policy.family)
        if parts is None:
            return None
        found += parts
    if family.config.loss > 1:
        found.append(Part(PolicyConfig("tiled", {"mlp": 1, "loss": family.config.loss}), (), "tiled"))
    return found


def compress(labels: Sequence[Hashable], ends: int = 1) -> tuple[list[int], tuple[int, ...]]:
    """Leave out repeats of a word of ``labels`` beyond ``ends`` at each end, and one between them.

    Returns:
        The places that are kept, ascending, and for every place the index among the kept ones of the
        place that it is like: the repeat in the middle stands for all that are left out.
    """
    enough = 2 * ends + 1
    kept: list[int] = []
    stands_for: list[int] = []
    place = 0
    while place < len(labels):
        word, repeats = _best_word(labels, place, enough)
        if repeats <= enough:
            stands_for.append(len(kept))
            kept.append(place)
            place += 1
            continue
        first = len(kept)
        kept += range(place, place + enough * word)
        for repeat in range(repeats):
            like = min(repeat, ends) if repeat < repeats - ends else enough - (repeats - repeat)
            stands_for += range(first + like * word, first + (like + 1) * word)
        place += repeats * word
    return kept, tuple(stands_for)


def _best_word(labels: Sequence[Hashable], start: int, enough: int) -> tuple[int, int]:
    """Length and number of repeats of the word at ``start`` that leaves out most."""
    best = (1, 1)
    for word in range(1, _LONGEST_WORD + 1):
        repeats = 1
        while labels[start : start + word] == labels[start + repeats * word : start + (repeats + 1) * word]:
            repeats += 1
            if start + repeats * word >= len(labels):
                break
        if (repeats - enough) * word > (best[1] - enough) * best[0]:
            best = (word, repeats)
    return best

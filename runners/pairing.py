"""Which rounds are measured again because nothing could be compared with them otherwise. Pure.

Only rounds that one session measured make a pair (:mod:`suite.paired`). A block whose cells were timed
in different sessions, such as after a raised budget or with a policy added later, would have ratios for
some cells and none for others. The cheapest honest rule: where a cell would share no round with the
reference, the rounds of both are measured again, interleaved; a cell that was paired with what is now
replaced follows. A torn round, as a kill leaves it, costs one pair and no measurement.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from suite.cell import Cell
from suite.record import Record, RecordKey

# What a round will be of that this session measures; a record's own session is a text.
_NOW = None


def unpaired(
    going: Sequence[Cell],
    *,
    reference: str,
    rounds: int,
    records: Mapping[RecordKey, Record],
    redo: Callable[[Record], bool],
) -> frozenset[RecordKey]:
    """Keys of the standing time records to measure again.

    Args:
        going: the cells of one block that get time passes.
        reference: label of the policy that others are compared with; where it has no time, every
            cell must be comparable with every other.
        rounds: how many each cell gets.
        records: those that exist, by key.
        redo: which of them are measured again in any case.
    """
    planned = {cell.id: _planned(cell, rounds, records, redo) for cell in going}
    timed = [cell for cell in going if planned[cell.id]]
    anchors = [cell for cell in timed if cell.policy_label == reference]
    pairs = (
        [(anchor, cell) for anchor in anchors for cell in timed if cell is not anchor]
        if anchors
        else list(combinations(timed, 2))
    )
    again: set[str] = set()
    while apart := [(a, b) for a, b in pairs if not _share(planned[a.id], planned[b.id])]:
        again.update(cell.id for pair in apart for cell in pair)
        for cell in again:
            planned[cell] = dict.fromkeys(planned[cell], _NOW)
    return frozenset(
        key
        for cell in again
        for key in (RecordKey(cell, "time", r) for r in range(rounds))
        if key in records and records[key].status == "ok" and not redo(records[key])
    )


def _planned(
    cell: Cell, rounds: int, records: Mapping[RecordKey, Record], redo: Callable[[Record], bool]
) -> dict[int, str | None]:
    """Round to the session it will be of if all goes well; a failure that stands ends the rounds."""
    found: dict[int, str | None] = {}
    for round_ in range(rounds):
        record = records.get(RecordKey(cell.id, "time", round_))
        if record is None or redo(record):
            found[round_] = _NOW
        elif record.status == "ok":
            found[round_] = record.session
        else:
            break
    return found


def _share(a: Mapping[int, str | None], b: Mapping[int, str | None]) -> bool:
    return bool(a.items() & b.items())

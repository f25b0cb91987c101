"""Which pass of which cell comes next. Pure order: no process, no clock, no file.

The cells of one workload form a block. In a block every cell's memory pass comes first, since it
decides who goes on; then FLOPs and parity; then the time passes round by round, interleaved, so
that each policy meets the machine in the same states and ratios can be paired by round.
"""

import random
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence

from suite.cell import Cell
from suite.record import Record, RecordKey
from suite.summary import over_budget

# The order of the single passes; the first decides who takes part in the others.
SINGLE = ("memory", "flops", "parity")

Step = tuple[Cell, RecordKey]


def blocks(cells: Sequence[Cell], reference: str) -> list[list[Cell]]:
    """``cells`` by workload, both in their given order, the ``reference`` policy's cell first."""
    by_workload: dict[str, list[Cell]] = {}
    for cell in cells:
        by_workload.setdefault(cell.workload_id, []).append(cell)
    return [sorted(block, key=lambda c: c.policy_label != reference) for block in by_workload.values()]


def round_order(block: Sequence[Cell], round_: int) -> list[Cell]:
    """The order of one round: a shuffle that the workload seeds, rotated by one place per round.

    Over as many rounds as there are cells, each cell takes each place once.
    """
    order = sorted(block, key=lambda c: c.id)
    random.Random(block[0].workload_id).shuffle(order)  # noqa: S311 - an order, not a secret
    shift = round_ % len(order)
    return order[shift:] + order[:shift]


# Cell to the passes it gets.
PassesOf = Callable[[Cell], Collection[str]]


def cell_keys(cell: Cell, passes: Collection[str], rounds: int) -> list[RecordKey]:
    """Every key of a cell that passes them all."""
    keys = [RecordKey(cell.id, name, 0) for name in SINGLE if name in passes]
    if "time" in passes:
        keys += [RecordKey(cell.id, "time", r) for r in range(rounds)]
    return keys


def outstanding(
    cell: Cell,
    *,
    passes: PassesOf,
    rounds: int,
    budget_bytes: int | None,
    records: Mapping[RecordKey, Record],
    redo: Callable[[Record], bool],
) -> list[RecordKey]:
    """What a cell is still to run if all goes well; nothing after a verdict that stands."""
    keys = []
    for key in cell_keys(cell, passes(cell), rounds):
        record = records.get(key)
        if record is None or redo(record):
            keys.append(key)
        elif not goes_on(record, budget_bytes):
            break
    return keys


def goes_on(record: Record, budget_bytes: int | None) -> bool:
    """Whether a cell with this record gets further passes."""
    over = over_budget(record, budget_bytes) if record.pass_ == "memory" else ""
    return record.status == "ok" and not over


class BlockSchedule:
    """Walks one block: ask :meth:`next`, run it, :meth:`tell` the record, ask again.

    ``records`` are those that exist, by key; it is only read, and expected to hold what is told.
    ``redo`` says which of them are to be measured again. ``completed`` is called once for each
    cell, when it has had the last pass it will get.
    """

    def __init__(
        self,
        block: Sequence[Cell],
        *,
        passes: PassesOf,
        rounds: int,
        budget_bytes: int | None,
        records: Mapping[RecordKey, Record],
        redo: Callable[[Record], bool],
        completed: Callable[[Cell], None],
    ) -> None:
        self.block = block
        self._passes, self._rounds, self._budget = passes, rounds, budget_bytes
        self._records, self._redo, self._completed = records, redo, completed
        self._walk = self._steps()
        self._told: Record | None = None

    def next(self) -> Step | None:
        """What to run now; None when the block is done."""
        return next(self._walk, None)

    def tell(self, record: Record) -> None:
        """The outcome of what :meth:`next` returned last."""
        self._told = record

    def _steps(self) -> Iterator[Step]:
        going = list(self.block)
        for name in SINGLE:
            left = []
            for cell in going:
                if name not in self._passes(cell) or (yield from self._passed(cell, name, 0)):
                    left.append(cell)  # noqa: PERF401 - a comprehension cannot yield
            going = left
        for cell in [cell for cell in going if "time" not in self._passes(cell)]:
            going.remove(cell)
            self._completed(cell)
        if not going:
            return
        for round_ in range(self._rounds):
            for cell in round_order(self.block, round_):
                if cell not in going:
                    continue
                if not (yield from self._passed(cell, "time", round_)):
                    going.remove(cell)
                elif round_ == self._rounds - 1:
                    self._completed(cell)

    def _passed(self, cell: Cell, name: str, round_: int) -> Generator[Step, None, bool]:
        """Run the pass unless its record stands; whether the cell may go on."""
        key = RecordKey(cell.id, name, round_)
        record = self._records.get(key)
        if record is None or self._redo(record):
            yield cell, key
            record, self._told = self._told, None
        if record is None:
            raise RuntimeError(f"{key}: asked for the next step before this one's record was told")
        if goes_on(record, self._budget):
            return True
        self._completed(cell)
        return False


def redo_rule(retry: Collection[str], redo_before: str) -> Callable[[Record], bool]:
    """Which records are measured again: ``interrupted`` always, others when ``retry`` names them.

    ``redo_before`` is the moment a ``retry=[all]`` began: what is older is redone until all is.
    """

    def redo(record: Record) -> bool:
        return record.status == "interrupted" or record.status in retry or record.started_at < redo_before

    return redo

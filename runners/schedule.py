"""Which pass of which cell comes next. Pure order: no process, no clock, no file.

The cells of one workload form a block. In a block every cell's memory pass comes first, since it
decides who goes on; then FLOPs and parity; then the time passes round by round, interleaved, so
that each policy meets the machine in the same states and ratios can be paired by round.
"""

import random
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from runners.pairing import unpaired
from suite.cell import Cell
from suite.record import Record, RecordKey
from suite.summary import over_budget

# The order of the single passes; the first decides who takes part in the others.
SINGLE = ("predict", "memory", "flops", "parity")

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


@dataclass(frozen=True)
class Rules:
    """What decides which passes run.

    ``records`` are those that exist, by key; it is only read, and expected to hold what is told.
    ``redo`` says which of them are to be measured again. ``reference`` is the label of the policy that
    others are compared with.
    """

    passes: PassesOf
    rounds: int
    budget_bytes: int | None
    records: Mapping[RecordKey, Record]
    redo: Callable[[Record], bool]
    reference: str

    def stands(self, key: RecordKey) -> Record | None:
        """The record of ``key`` unless there is none or it is measured again."""
        record = self.records.get(key)
        return None if record is None or self.redo(record) else record

    def unpaired(self, going: Sequence[Cell]) -> frozenset[RecordKey]:
        """See :func:`runners.pairing.unpaired`."""
        return unpaired(
            going, reference=self.reference, rounds=self.rounds, records=self.records, redo=self.redo
        )


def outstanding(block: Sequence[Cell], rules: Rules) -> dict[str, list[RecordKey]]:
    """By cell, what a block is still to run if all goes well; nothing after a verdict that stands."""
    again = rules.unpaired([cell for cell in block if _may_be_timed(cell, rules)])
    return {cell.id: _outstanding(cell, rules, again) for cell in block}


def _may_be_timed(cell: Cell, rules: Rules) -> bool:
    passes = rules.passes(cell)
    singles = [rules.stands(key) for key in cell_keys(cell, passes, 0)]
    return "time" in passes and all(r is None or goes_on(r, rules.budget_bytes) for r in singles)


def _outstanding(cell: Cell, rules: Rules, again: Collection[RecordKey]) -> list[RecordKey]:
    keys = []
    for key in cell_keys(cell, rules.passes(cell), rules.rounds):
        record = rules.stands(key)
        if record is None or key in again:
            keys.append(key)
        elif not goes_on(record, rules.budget_bytes):
            break
    return keys


def goes_on(record: Record, budget_bytes: int | None) -> bool:
    """Whether a cell with this record gets further passes."""
    return record.status == "ok" and not over_budget(record, budget_bytes)


class BlockSchedule:
    """Walks one block: ask :meth:`next`, run it, :meth:`tell` the record, ask again.

    ``completed`` is called once for each cell, when it has had the last pass it will get;
    ``remeasuring`` before the rounds, with those that stand and are measured again to be paired.
    """

    def __init__(
        self,
        block: Sequence[Cell],
        rules: Rules,
        *,
        completed: Callable[[Cell], None],
        remeasuring: Callable[[frozenset[RecordKey]], None],
    ) -> None:
        self.block = block
        self._rules, self._completed, self._remeasuring = rules, completed, remeasuring
        self._again: frozenset[RecordKey] = frozenset()
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
                if name not in self._rules.passes(cell) or (yield from self._passed(cell, name, 0)):
                    left.append(cell)  # noqa: PERF401 - a comprehension cannot yield
            going = left
        for cell in [cell for cell in going if "time" not in self._rules.passes(cell)]:
            going.remove(cell)
            self._completed(cell)
        if not going:
            return
        self._again = self._rules.unpaired(going)
        if self._again:
            self._remeasuring(self._again)
        for round_ in range(self._rules.rounds):
            for cell in round_order(self.block, round_):
                if cell not in going:
                    continue
                if not (yield from self._passed(cell, "time", round_)):
                    going.remove(cell)
                elif round_ == self._rules.rounds - 1:
                    self._completed(cell)

    def _passed(self, cell: Cell, name: str, round_: int) -> Generator[Step, None, bool]:
        """Run the pass unless its record stands; whether the cell may go on."""
        key = RecordKey(cell.id, name, round_)
        record = self._rules.stands(key)
        if record is None or key in self._again:
            yield cell, key
            record, self._told = self._told, None
        if record is None:
            raise RuntimeError(f"{key}: asked for the next step before this one's record was told")
        if goes_on(record, self._rules.budget_bytes):
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

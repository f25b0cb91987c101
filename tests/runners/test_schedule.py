from hypothesis import given
from hypothesis import strategies as st
from runner_cases import make_cell

from runners.job import Job
from runners.schedule import BlockSchedule, blocks, cell_keys, redo_rule, round_order
from suite.record import RecordKey

PASSES = ("memory", "flops", "parity", "time")
CELLS = [make_cell("ok"), make_cell("none"), make_cell("ok", peak=5)]


def record_of(cell, name, round_, status="ok", peak=1000.0):
    from pathlib import Path

    from runner_cases import make_session

    job = Job(cell, name, round_, make_session(Path("nowhere")), Path("nowhere"), {}, {})
    figures = {"peak_bytes": peak} if (name, status) == ("memory", "ok") else {}
    return job.record(status, figures=figures, error=None if status == "ok" else {"message": "x"})


def walk(
    block,
    *,
    outcomes=None,
    records=None,
    retry=(),
    redo_before="",
    budget=None,
    rounds=3,
    passes=PASSES,
    own=None,
):
    """Run a block to its end; (keys run in order, ids of cells completed in order)."""
    ran, completed, records = [], [], dict(records or {})
    schedule = BlockSchedule(
        block,
        passes=lambda cell: (own or {}).get(cell.id, passes),
        rounds=rounds,
        budget_bytes=budget,
        records=records,
        redo=redo_rule(retry, redo_before),
        completed=lambda cell: completed.append(cell.id),
    )
    while (step := schedule.next()) is not None:
        cell, key = step
        ran.append(key)
        records[key] = (outcomes or {}).get(key) or record_of(cell, key.pass_, key.round)
        schedule.tell(records[key])
    return ran, completed


def test_blocks_are_workloads_in_order_with_the_reference_first():
    a, none, b = CELLS
    long, long_none = make_cell("ok", seq_len=32), make_cell("none", seq_len=32)
    assert blocks([a, long, none, b, long_none], "none") == [[none, a, b], [long_none, long]]


def test_singles_come_pass_by_pass_then_rounds_interleaved():
    block = blocks(CELLS, "none")[0]
    ran, completed = walk(block)
    singles = [RecordKey(cell.id, name, 0) for name in ("memory", "flops", "parity") for cell in block]
    assert ran[:9] == singles
    times = ran[9:]
    assert [key.round for key in times] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert all({k.cell for k in times[i : i + 3]} == {c.id for c in CELLS} for i in (0, 3, 6))
    assert sorted(completed) == sorted(cell.id for cell in CELLS)


def test_each_cell_takes_each_place_of_a_round_once():
    orders = [[cell.id for cell in round_order(CELLS, r)] for r in range(3)]
    assert all(len(set(place)) == 3 for place in zip(*orders, strict=True))
    assert orders == [[cell.id for cell in round_order(CELLS[::-1], r)] for r in range(3)]
    assert round_order(CELLS, 3) == round_order(CELLS, 0)


def test_a_cell_that_is_not_ok_gets_nothing_more_and_completes_at_once():
    none, bad, good = blocks(CELLS, "none")[0]
    for status in ("oom", "wrong", "crash", "timeout", "unsupported", "invalid"):
        outcome = {RecordKey(bad.id, "memory", 0): record_of(bad, "memory", 0, status)}
        ran, completed = walk([none, bad, good], outcomes=outcome)
        assert [key for key in ran if key.cell == bad.id] == [RecordKey(bad.id, "memory", 0)]
        assert completed[0] == bad.id
        assert len(ran) == 2 * 6 + 1


def test_a_failed_round_ends_the_rounds_of_that_cell_only():
    none, bad, good = blocks(CELLS, "none")[0]
    outcome = {RecordKey(bad.id, "time", 1): record_of(bad, "time", 1, "timeout")}
    ran, completed = walk([none, bad, good], outcomes=outcome)
    assert [k.round for k in ran if k.cell == bad.id and k.pass_ == "time"] == [0, 1]
    assert [k.round for k in ran if k.cell == good.id and k.pass_ == "time"] == [0, 1, 2]
    assert completed[0] == bad.id


def test_over_budget_is_not_timed_and_a_larger_budget_runs_the_missing_passes_only():
    _, cell, _ = blocks(CELLS, "none")[0]
    memory = RecordKey(cell.id, "memory", 0)
    records = {memory: record_of(cell, "memory", 0, peak=2000.0)}
    assert walk([cell], records=records, budget=1999)[0] == []
    ran, _ = walk([cell], records=records, budget=2000)
    assert ran == cell_keys(cell, PASSES, 3)[1:]


def test_what_stands_is_skipped_unless_named():
    cell = CELLS[0]
    keys = cell_keys(cell, PASSES, 1)
    done = {key: record_of(cell, key.pass_, key.round) for key in keys}
    assert walk([cell], records=done, rounds=1) == ([], [cell.id])
    bad = {**done, keys[0]: record_of(cell, "memory", 0, "oom")}
    assert walk([cell], records=bad, rounds=1)[0] == []
    assert walk([cell], records=bad, retry=("crash",), rounds=1)[0] == []
    assert walk([cell], records=bad, retry=("oom",), rounds=1)[0] == [keys[0]]
    cut = {**done, keys[2]: record_of(cell, "parity", 0, "interrupted")}
    assert walk([cell], records=cut, rounds=1)[0] == [keys[2]]
    assert walk([cell], records=done, redo_before="9999", rounds=1)[0] == keys
    assert walk([cell], records=done, redo_before="1999", rounds=1)[0] == []


def test_a_subset_of_passes():
    cell = CELLS[0]
    assert walk([cell], passes=("flops",)) == ([RecordKey(cell.id, "flops", 0)], [cell.id])
    ran, completed = walk([cell], passes=("time",), rounds=2)
    assert ran == [RecordKey(cell.id, "time", 0), RecordKey(cell.id, "time", 1)]
    assert completed == [cell.id]


STATUS = st.sampled_from(["ok", "ok", "ok", "oom", "crash", "interrupted"])


@given(st.lists(STATUS, min_size=18, max_size=18), st.lists(STATUS, min_size=18, max_size=18), st.data())
def test_whatever_happens_each_key_runs_at_most_once_and_each_cell_completes_once(before, now, data):
    block = blocks(CELLS, "none")[0]
    keys = [key for cell in block for key in cell_keys(cell, PASSES, 3)]
    cells = {cell.id: cell for cell in block}
    made = [
        {k: record_of(cells[k.cell], k.pass_, k.round, s) for k, s in zip(keys, statuses, strict=True)}
        for statuses in (before, now)
    ]
    known = data.draw(st.sets(st.sampled_from(keys)))
    existing = {key: made[0][key] for key in known}
    ran, completed = walk(block, outcomes=made[1], records=existing)
    assert len(set(ran)) == len(ran)
    assert sorted(completed) == sorted(cells)
    assert not [k for k in ran if k in existing and existing[k].status != "interrupted"]
    final = {**existing, **{key: made[1][key] for key in ran}}
    for key in ran:
        position = cell_keys(cells[key.cell], PASSES, 3).index(key)
        earlier = cell_keys(cells[key.cell], PASSES, 3)[:position]
        assert all(final[k].status == "ok" for k in earlier)


def test_cells_of_a_block_may_get_different_passes():
    block = blocks(CELLS, "none")[0]
    few, full = block[1], [block[0], block[2]]
    ran, completed = walk(block, own={few.id: ("memory",)}, rounds=2)
    assert [key.pass_ for key in ran if key.cell == few.id] == ["memory"]
    for cell in full:
        assert [key.pass_ for key in ran if key.cell == cell.id] == [*PASSES, "time"]
    assert sorted(completed) == sorted(cell.id for cell in block)

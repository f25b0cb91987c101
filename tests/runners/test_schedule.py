from hypothesis import given
from hypothesis import strategies as st
from runner_cases import make_cell

from runners.job import Job
from runners.pairing import unpaired
from runners.schedule import BlockSchedule, Rules, blocks, cell_keys, outstanding, redo_rule, round_order
from suite.record import RecordKey

PASSES = ("memory", "flops", "parity", "time")
CELLS = [make_cell("ok"), make_cell("none"), make_cell("ok", peak=5)]


def record_of(cell, name, round_, status="ok", peak=1000.0, session=""):
    from pathlib import Path

    from runner_cases import make_session

    job = Job(cell, name, round_, make_session(Path("nowhere")), Path("nowhere"), {}, {}, session)
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
    rules = Rules(
        passes=lambda cell: (own or {}).get(cell.id, passes),
        rounds=rounds,
        budget_bytes=budget,
        records=records,
        redo=redo_rule(retry, redo_before),
        reference="none",
    )
    expected = {key for keys in outstanding(block, rules).values() for key in keys}
    schedule = BlockSchedule(
        block,
        rules,
        completed=lambda cell: completed.append(cell.id),
        remeasuring=lambda keys: None,
    )
    while (step := schedule.next()) is not None:
        cell, key = step
        ran.append(key)
        records[key] = (outcomes or {}).get(key) or record_of(cell, key.pass_, key.round, session="now")
        schedule.tell(records[key])
    if not outcomes:
        assert expected == set(ran), "what is planned is what runs"
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
        {
            k: record_of(cells[k.cell], k.pass_, k.round, s, session=session)
            for k, s in zip(keys, statuses, strict=True)
        }
        for statuses, session in ((before, "before"), (now, "now"))
    ]
    known = data.draw(st.sets(st.sampled_from(keys)))
    existing = {key: made[0][key] for key in known}
    ran, completed = walk(block, outcomes=made[1], records=existing)
    assert len(set(ran)) == len(ran)
    assert sorted(completed) == sorted(cells)
    repeated = {k for k in ran if k in existing and existing[k].status != "interrupted"}
    assert all(k.pass_ == "time" and existing[k].status == "ok" for k in repeated)
    final = {**existing, **{key: made[1][key] for key in ran}}
    for key in ran:
        position = cell_keys(cells[key.cell], PASSES, 3).index(key)
        earlier = cell_keys(cells[key.cell], PASSES, 3)[:position]
        assert all(final[k].status == "ok" for k in earlier)


def timed(cell, sessions):
    """All single passes, and a round for each session that is not None."""
    records = {key: record_of(cell, key.pass_, 0) for key in cell_keys(cell, PASSES, 0)}
    for round_, session in enumerate(sessions):
        if session is not None:
            key = RecordKey(cell.id, "time", round_)
            records[key] = record_of(cell, "time", round_, session=session)
    return records


SESSIONS = st.lists(st.sampled_from(["monday", "tuesday", "", None]), min_size=3, max_size=3)


@given(SESSIONS, SESSIONS, SESSIONS)
def test_in_the_end_every_cell_shares_a_round_with_the_reference(first, second, third):
    block = blocks(CELLS, "none")[0]
    records = {}
    for cell, sessions in zip(block, (first, second, third), strict=True):
        records |= timed(cell, sessions)
    ran, _ = walk(block, records=records)
    cells = {cell.id: cell for cell in block}
    final = records | {k: record_of(cells[k.cell], k.pass_, k.round, session="now") for k in ran}
    rounds = {
        cell.id: {(r.session, r.round) for k, r in final.items() if (k.cell, k.pass_) == (cell.id, "time")}
        for cell in block
    }
    assert all(rounds[block[0].id] & rounds[cell.id] for cell in block)
    assert walk(block, records=final)[0] == []


def test_a_resumed_block_measures_nothing_twice_and_a_torn_round_costs_one_pair():
    none, a, b = blocks(CELLS, "none")[0]
    records = timed(none, ["killed"] * 2) | timed(a, ["killed"] * 2) | timed(b, ["killed", None])
    ran, _ = walk([none, a, b], records=records)
    assert {(k.cell, k.round) for k in ran} == {(b.id, 1), (none.id, 2), (a.id, 2), (b.id, 2)}


def test_what_could_not_be_compared_is_measured_again_with_all_that_hangs_on_it():
    none, a, b = blocks(CELLS, "none")[0]
    # The reference fits only now: rounds that others have from yesterday say nothing about it.
    raised = timed(none, []) | timed(a, ["old"] * 3) | timed(b, ["old"] * 3)
    ran, _ = walk([none, a, b], records=raised)
    assert sorted(ran) == sorted(RecordKey(c.id, "time", r) for c in (none, a, b) for r in range(3))
    # A policy is added: the reference is measured beside it, and what was paired with the reference too.
    added = timed(none, ["old"] * 3) | timed(a, ["old"] * 3) | timed(b, [])
    assert sorted(walk([none, a, b], records=added)[0]) == sorted(ran)
    # Further rounds meet in the new ones.
    more = timed(none, ["old"] * 2) | timed(a, [])
    assert {(k.cell, k.round) for k in walk([none, a], records=more)[0]} == {
        (none.id, 2),
        *((a.id, r) for r in range(3)),
    }


def test_without_a_reference_every_cell_can_be_compared_with_every_other():
    _, a, b = blocks(CELLS, "none")[0]
    records = timed(a, ["old"] * 2) | timed(b, [])
    assert len(walk([a, b], records=records, rounds=2)[0]) == 4
    assert walk([a], records=timed(a, ["old"] * 2), rounds=2)[0] == []


def test_a_failure_that_stands_is_no_reason_to_measure_others_again():
    none, a, _ = blocks(CELLS, "none")[0]
    records = timed(none, ["old"] * 3) | timed(a, [])
    records[RecordKey(a.id, "time", 0)] = record_of(a, "time", 0, "crash", session="new")
    redo = redo_rule((), "")
    assert not unpaired([none, a], reference="none", rounds=3, records=records, redo=redo)
    assert walk([none, a], records=records)[0] == []


def test_cells_of_a_block_may_get_different_passes():
    block = blocks(CELLS, "none")[0]
    few, full = block[1], [block[0], block[2]]
    ran, completed = walk(block, own={few.id: ("memory",)}, rounds=2)
    assert [key.pass_ for key in ran if key.cell == few.id] == ["memory"]
    for cell in full:
        assert [key.pass_ for key in ran if key.cell == cell.id] == [*PASSES, "time"]
    assert sorted(completed) == sorted(cell.id for cell in block)

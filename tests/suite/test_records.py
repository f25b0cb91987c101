"""Records: read back exactly as written, and refused when they are anything else."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_cases import FIGURES, record

from suite.config.schema import STATUSES
from suite.record import InvalidRecord, Record, RecordKey, parse, validate
from suite.store import RecordStore, write_atomic


@given(
    pass_=st.sampled_from(list(FIGURES)),
    round_=st.integers(0, 999),
    status=st.sampled_from(STATUSES),
    detail=st.dictionaries(st.text(), st.one_of(st.text(), st.booleans(), st.none(), st.integers())),
    warnings=st.lists(st.text()),
    wall_s=st.floats(0, 1e6),
)
def test_what_is_written_is_what_is_read(
    pass_: str, round_: int, status: str, detail: Any, warnings: Any, wall_s: float
) -> None:
    one = record(pass_, round_=round_, status=status, detail=detail, warnings=warnings, wall_s=wall_s)
    assert parse(one.to_json(), "f") == one


BROKEN = [
    ({"schema": 2}, "schema 2, this version reads 1"),
    ({"status": "fine"}, "status 'fine'"),
    ({"pass_": "speed"}, "pass 'speed'"),
    ({"round": -1}, "round -1 is negative"),
    ({"figures": {}}, "ok without the figures peak_bytes, static_bytes"),
    ({"figures": {**FIGURES["memory"], "x_bytes": math.nan}}, "figure x_bytes is nan"),
    ({"figures": {**FIGURES["memory"], "x_bytes": math.inf}}, "figure x_bytes is inf"),
    ({"figures": {**FIGURES["memory"], "x_bytes": "12"}}, "figure x_bytes is '12'"),
    ({"figures": {**FIGURES["memory"], "x_bytes": True}}, "figure x_bytes is True"),
    ({"error": {"type": "T", "message": "m", "where": "w"}}, "ok with an error"),
    ({"status": "crash"}, "crash without an error that says why"),
]


@pytest.mark.parametrize(("changes", "message"), BROKEN, ids=str)
def test_an_incomplete_record_is_never_stored(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRecord, match=message):
        validate(_with(changes))
    with pytest.raises(InvalidRecord):
        RecordStore(tmp_path).write(_with(changes))
    assert not list(tmp_path.rglob("*.json"))


def _with(changes: dict[str, Any]) -> Record:
    import dataclasses

    return dataclasses.replace(record(), **changes)


DAMAGED = [
    ("", "not JSON"),
    ("[]", "not a JSON object"),
    ("{}", "schema None"),
    (record().to_json()[:-40], "not JSON"),
    (json.dumps({**json.loads(record().to_json()), "schema": 99}), "schema 99"),
    (json.dumps({**json.loads(record().to_json()), "extra": 1}), "unknown extra"),
    (json.dumps({k: v for k, v in json.loads(record().to_json()).items() if k != "code"}), "lacks code"),
    (json.dumps({**json.loads(record().to_json()), "round": "0"}), "round is str"),
    (json.dumps({**json.loads(record().to_json()), "round": True}), "round is bool"),
    (record().to_json().replace('"peak_bytes": 100', '"peak_bytes": NaN'), "peak_bytes is nan"),
]


@pytest.mark.parametrize(("text", "message"), DAMAGED, ids=[m for _, m in DAMAGED])
def test_a_damaged_file_is_named_and_does_not_hide_the_others(
    tmp_path: Path, text: str, message: str
) -> None:
    store = RecordStore(tmp_path)
    store.write(record("flops"))
    bad = RecordKey("0" * 16, "memory", 0)
    store.record_path(bad).write_text(text)
    assert store.read(bad) is None
    problems = [found for found in store.scan() if isinstance(found, InvalidRecord)]
    assert len(problems) == 1
    assert str(problems[0]).startswith(f"{bad}.json: ")
    assert message in str(problems[0])
    assert store.records() == [record("flops")]


def test_a_record_under_another_name_is_not_taken_for_it(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    store.write(record())
    other = RecordKey("0" * 16, "memory", 0)
    store.record_path(other).write_text(record().to_json())
    assert store.read(other) is None
    (problem,) = [found for found in store.scan() if isinstance(found, InvalidRecord)]
    assert str(problem) == f"{other}.json: is a copy of the record {record().key}"


def test_binary_rubbish_is_no_record(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    path = store.record_path(record().key)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\xfe\x00")
    assert store.read(record().key) is None
    assert len(list(store.scan())) == 1


def test_writing_again_replaces_and_leaves_nothing_beside(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    store.write(record(wall_s=1.0))
    store.write(record(wall_s=2.0))
    assert [r.wall_s for r in store.records()] == [2.0]
    assert len(list((tmp_path / "records").iterdir())) == 1


def test_a_writer_killed_at_any_moment_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    program = (
        "import sys; from pathlib import Path; from suite.store import write_atomic\n"
        "path = Path(sys.argv[1]); texts = ['a' * 300000, 'b' * 300000]\n"
        "write_atomic(path, texts[0]); print('ready', flush=True); i = 0\n"
        "while True: i += 1; write_atomic(path, texts[i % 2])\n"
    )
    root = str(Path(__file__).parents[2])
    for moment in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", program, str(path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": root},
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        for _ in range(20 * (moment + 1)):
            assert set(path.read_text()) in ({"a"}, {"b"})
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        assert len(path.read_text()) == 300000


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "new \ud800")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]

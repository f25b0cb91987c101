import dataclasses
from pathlib import Path

import pytest
from tracking_builders import Sweep, cell_of, small_sweep

from suite.config.schema import STATUSES
from suite.store import RecordStore
from suite.summary import summarise
from suite.tracking.mlflow_cells import LARGEST_LOG_BYTES, RUN_STATUS, describe, key, text, unix_ms


def test_every_verdict_has_a_run_status() -> None:
    assert RUN_STATUS.keys() == set(STATUSES)


def test_the_digest_follows_the_records_and_the_verdict_and_nothing_else(tmp_path: Path) -> None:
    sweep = small_sweep(tmp_path)
    none = sweep.cells[0]

    def digest(budget_bytes: int | None = None) -> str:
        summary = summarise(sweep.store.records(), budget_bytes=budget_bytes)[none.id]
        return describe(summary, sweep.store).digest

    first = digest()
    assert digest() == first
    assert digest(2**40) == first
    assert digest(10**6) not in (first, digest(10**6 + 10**5))
    sweep.write(sweep.cells[1], "time", 3)
    assert digest() == first
    sweep.write(none, "time", 3)
    assert digest() != first


def test_a_figure_that_two_passes_state_is_shown_for_both(tmp_path: Path) -> None:
    sweep = Sweep(RecordStore(tmp_path / "s"))
    cell = cell_of("none")
    sweep.write(cell, "memory", figures=dict.fromkeys(_MEMORY, 1.0) | {"calls_count": 1.0})
    sweep.write(cell, "flops", figures=dict.fromkeys(_FLOPS, 2.0) | {"calls_count": 2.0})
    points = describe(sweep.summaries()[cell.id], sweep.store).points
    assert [(p.key, p.value) for p in points if "calls" in p.key] == [
        ("calls_count", 1),
        ("flops.calls_count", 2),
    ]


_MEMORY = ("peak_bytes", "static_bytes", "activation_bytes", "saved_bytes")
_FLOPS = ("model_flops", "executed_flops", "recomputed_flops")


def test_the_source_of_a_model_may_change_and_is_no_parameter(tmp_path: Path) -> None:
    sweep = small_sweep(tmp_path)
    run = describe(sweep.summaries()[sweep.cells[0].id], sweep.store)
    assert "model.source" not in run.params
    assert run.tags["suite.model_source"] == "for tests"
    # The device's name comes from the fingerprint, its type from the configuration.
    assert (run.tags["suite.device"], run.params["device"]) == ("Test CPU", "cpu")


def test_a_log_too_large_for_an_artifact_is_named(tmp_path: Path) -> None:
    sweep = Sweep(RecordStore(tmp_path / "s"))
    record = sweep.write(cell_of("none"), "memory")
    path = sweep.store.log_path(record.key)
    path.write_bytes(b"x" * LARGEST_LOG_BYTES)
    (summary,) = sweep.summaries().values()
    assert describe(summary, sweep.store).logs == (path,)
    path.write_bytes(b"x" * (LARGEST_LOG_BYTES + 1))
    run = describe(summary, sweep.store)
    assert run.logs == ()
    assert run.tags["mlflow.note.content"].endswith(f"- `{path.name}` is too large to be an artifact")


def test_warnings_of_the_passes_are_in_the_note_once(tmp_path: Path) -> None:
    sweep = Sweep(RecordStore(tmp_path / "s"))
    for round_ in range(2):
        sweep.write(cell_of("none"), "time", round_, warnings=["load average 3.2"])
    (summary,) = sweep.summaries().values()
    assert describe(summary, sweep.store).tags["mlflow.note.content"] == "**ok**\n\n- load average 3.2"


def test_a_record_that_is_not_on_disk_cannot_be_described(tmp_path: Path) -> None:
    sweep = small_sweep(tmp_path)
    summary = sweep.summaries()[sweep.cells[0].id]
    with pytest.raises(FileNotFoundError):
        describe(summary, dataclasses.replace(sweep.store, root=tmp_path / "elsewhere"))


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ("1970-01-01T00:00:01.250+00:00", 1250),
        ("1970-01-01T01:00:01.250+01:00", 1250),
        ("1970-01-01T00:00:01.250Z", 1250),
        ("1970-01-01T00:00:01.250", 1250),
        ("yesterday", 0),
        ("", 0),
    ],
)
def test_time_stamps(stamp: str, expected: int) -> None:
    assert unix_ms(stamp) == expected


def test_text_fits_every_store() -> None:
    assert text(True, 10) == "true"
    assert text("a\0b", 10) == "a\\0b"
    assert text("\udce4", 10) == "\\udce4"
    assert text("x" * 11, 10) == "x" * 9 + "…"
    assert key("peak/é bytes") == "peak___bytes"

"""Predicting through the command line: nothing runs, or what fits is measured and compared."""

from pathlib import Path

from suite_process import SMALL, suite

from suite.store import RecordStore


def _records(folder: Path) -> RecordStore:
    (found,) = (folder / "runs").glob("*/records")
    return RecordStore(found.parent)


def test_a_card_that_is_not_here_is_predicted_for(tmp_path: Path) -> None:
    done = suite(tmp_path, *SMALL, "mode=predict", "hardware=h100_80gb", "policy=full", "report=false")
    assert done.returncode == 0, done.stderr
    assert "fits" in done.stdout
    assert "attention_kernel=" in done.stdout
    records = _records(tmp_path).records()
    assert {r.pass_ for r in records} == {"predict"}
    for record in records:
        assert record.fingerprint["name"] == "h100_80gb"
        assert record.figures["peak_reserved_bytes"] >= record.figures["peak_allocated_bytes"]
        assert record.detail["sources"].keys() == record.figures.keys()


def test_both_predicts_exactly_what_is_then_measured(tmp_path: Path) -> None:
    options = ["mode=both", "policy=full", "passes=[memory,flops]", "report=false"]
    done = suite(tmp_path, *SMALL, *options)
    assert done.returncode == 0, done.stderr
    assert "peak equal to the measured one" in done.stdout
    by_pass = {(r.cell, r.pass_): r for r in _records(tmp_path).records()}
    for (cell, pass_), record in by_pass.items():
        if pass_ in ("memory", "flops"):
            predicted = by_pass[cell, "predict"].figures
            assert {name: predicted[name] for name in record.figures} == record.figures


def test_what_is_predicted_not_to_fit_is_not_run(tmp_path: Path) -> None:
    options = ["mode=both", "policy=none", "budget=3MiB", "passes=[memory]", "report=false"]
    done = suite(tmp_path, *SMALL, *options)
    assert done.returncode == 0, done.stderr
    assert "oom" in done.stdout
    assert "predicted: needs" in done.stdout
    assert {r.pass_ for r in _records(tmp_path).records()} == {"predict"}

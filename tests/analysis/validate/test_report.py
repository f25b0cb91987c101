"""The arithmetic of errors and the report, under predictors that answer what the test says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.predictor import one_by_one
from analysis.validate.case import Case, Unmodelled
from analysis.validate.report import Report, counts_sentence, json_of, sheets_of, spread_of
from analysis.validate.score import FITS, OVER, UNSURE, score_cases
from analysis.validate.show import Choice, markdown_of, show_validation

ROOT = Path(__file__).parents[3]
GIB = 2**30


def asked(name, *, batch=1, micro_batches=1):
    config = {
        "model": name,
        "batch_size": batch,
        "seq_len": 8,
        "parallel": {"micro_batches": micro_batches},
    }
    return {"config": config, "hardware": "h100_80gb", "assumptions": {}}


def case(row="s-000", kind="memory", metric="peak_allocated_bytes", expected=100.0, of=("a",), **more):
    requests = tuple(asked(name) if isinstance(name, str) else name for name in of)
    return Case(
        row, row.rsplit("-", 1)[0], more.pop("policy", "full"), kind, metric, expected, requests, **more
    )


def scores(cases, figures):
    """Scores under a predictor that knows ``figures`` by the request's model; text is an error."""

    def predict(request):
        found = figures[request["config"]["model"]]
        return {"error": found} if isinstance(found, str) else {"figures": found, "detail": {}}

    return score_cases(cases, one_by_one(predict))


def test_memory_is_off_by_percent_with_its_sign():
    (score,) = scores([case()], {"a": {"peak_allocated_bytes": 90}})
    assert (score.predicted, score.error) == (90, -10.0)


def test_a_difference_is_of_two_requests():
    (score,) = scores(
        [case(kind="memory_difference", expected=-20.0, of=("a", "b"))],
        {"a": {"peak_allocated_bytes": 70}, "b": {"peak_allocated_bytes": 100}},
    )
    assert (score.predicted, score.error) == (-30, -50.0)


def test_a_ratio_is_off_by_points():
    times = {"a": {"step_time_s": 1.3}, "b": {"step_time_s": 1.0}}
    (score,) = scores([case(kind="time_ratio", metric="step_time_s", expected=1.25, of=("a", "b"))], times)
    assert score.error == pytest.approx(5.0)


def test_a_ratio_by_token_divides_by_the_tokens_of_a_step():
    of = (asked("a", batch=2, micro_batches=3), asked("b"))
    times = {"a": {"step_time_s": 9.0}, "b": {"step_time_s": 1.0}}
    told = case(kind="time_ratio", metric="step_time_s", expected=1.5, of=of, per_token=True)
    assert scores([told], times)[0].predicted == 1.5


def test_two_depths_leave_only_the_blocks():
    of = ("full4", "full2", "none4", "none2")
    times = {n: {"step_time_s": t} for n, t in zip(of, (11.0, 7.0, 8.0, 5.0), strict=True)}
    (score,) = scores([case(kind="time_ratio", metric="step_time_s", expected=1.3, of=of)], times)
    assert score.predicted == 4 / 3
    kept = {"a": {"saved_bytes": 30}, "b": {"saved_bytes": 10}}
    told = case(kind="activation_formula", metric="saved_bytes", expected=80.0, of=("a", "b"), scale=4.0)
    assert scores([told], kept)[0].error == 0.0
    assert not told.in_points


def test_reserved_bytes_are_right_anywhere_in_their_interval():
    figures = {"a": {"reserved_low_bytes": 95, "reserved_high_bytes": 110}}
    wide = [case(metric="reserved_bytes", expected=e) for e in (100.0, 125.0, 50.0)]
    found = scores(wide, figures)
    assert [s.error for s in found] == [0.0, -12.0, 90.0]
    assert found[0].interval_bytes == (95, 110)


@pytest.mark.parametrize(("low", "high", "verdict"), [(70, 80, FITS), (79, 81, UNSURE), (81, 90, OVER)])
def test_what_fits_is_a_verdict(low, high, verdict):
    told = case(kind="fits", metric="reserved_bytes", expected=1.0, capacity_bytes=80 * GIB)
    figures = {"a": {"reserved_low_bytes": low * GIB, "reserved_high_bytes": high * GIB}}
    (score,) = scores([told], figures)
    assert (score.verdict, score.error) == (verdict, None)


def test_what_the_predictor_refuses_is_said_and_not_counted():
    cases = [case("s-000"), case("s-001", of=("b",)), case("s-002", metric="saved_bytes")]
    found = scores(cases, {"a": {"peak_allocated_bytes": 100}, "b": "compile=block: not traced"})
    assert [s.refused for s in found] == ["", "compile=block: not traced", "no figure saved_bytes"]
    spread = spread_of(found)
    assert (spread.count, spread.median) == (1, 0.0)


def test_a_question_is_asked_once_however_many_rows_ask_it():
    questions = []

    def predict(request):
        questions.append(request)
        return {"figures": {"peak_allocated_bytes": 100, "static_bytes": 50}}

    told = []
    cases = [case("s-000"), case("s-001"), case("s-002", metric="static_bytes")]
    score_cases(cases, one_by_one(predict), lambda done, of: told.append((done, of)))
    assert (len(questions), told) == (1, [(1, 1)])


def test_the_spread_is_of_absolute_errors():
    cases = [case(f"s-{i:03}", of=(str(i),)) for i in range(10)]
    figures = {str(i): {"peak_allocated_bytes": 100 + (i + 1) * (-1) ** i} for i in range(10)}
    spread = spread_of(scores(cases, figures))
    assert (spread.count, spread.configs_count, spread.median, spread.p90) == (10, 10, 5.5, 9.0)
    assert (spread.worst, spread.worst_row, spread.bias) == (-10.0, "s-009", -0.5)


def report_of_three():
    cases = [
        case("s-000", caveat="a small model"),
        case("s-001", policy="none", expected=50.0),
        case("t-000", kind="fits", metric="reserved_bytes", expected=0.0, capacity_bytes=10),
        case("t-001", of=("b",)),
    ]
    found = scores(cases, {"a": {"peak_allocated_bytes": 90}, "b": "no | such model"})
    return Report([*cases, Unmodelled("t-002", "t", "LoRA"), Unmodelled("t-003", "t", "LoRA")], found)


def test_the_tables():
    sheets = {sheet.title: sheet for sheet in sheets_of(report_of_three(), worst=5, verbose=True)}
    (line,) = sheets["Errors by source"].lines
    assert line[:8] == ("s", "peak memory", "%", "2", "1", "45.0", "80.0", "+35.0")
    assert line[-2:] == ("+80.0", "s-001")
    assert [line[0] for line in sheets["Errors by policy"].lines] == ["full", "none"]
    assert sheets["Does it fit"].lines == (("t", "out of memory", "0", "0", "1"),)
    assert sheets["Refused by the predictor"].lines == (("1", "no | such model", "t-001"),)
    assert sheets["Not modelled"].lines == (("2", "t", "LoRA", "002, 003"),)
    assert sheets["The worst"].lines[0][:2] == ("s-001 and 1 more", "none")
    assert counts_sentence(report_of_three()) == (
        "6 rows: 4 predicted (4 figures), 0 that only others are compared with, 2 not modelled."
    )


def test_markdown_and_json():
    report = report_of_three()
    text = markdown_of(report, sheets_of(report, worst=5))
    assert "| 1 | no \\| such model | t-001 |" in text
    assert "| rows | source | why it is not modelled |\n| ---: | --- | --- |\n| 2 | t | LoRA |" in text
    told = json.loads(json.dumps(json_of(report), allow_nan=False))
    assert told["rows"] == {"case": 4, "partner": 0, "unmodelled": 2}
    halves = {(g["half"], g["count"]) for g in told["by_source"]}
    assert ("all", 2) in halves
    assert sum(count for half, count in halves if half != "all") in (2, 1)
    assert told["scores"][0]["error"] == -10.0
    assert "requests" not in told["scores"][0]


def everything(request):
    names = ("peak_allocated_bytes", "static_bytes", "saved_bytes", "step_time_s")
    depth = request["config"]["model"]["n_layers"]
    figures = {name: float(depth * GIB) for name in names}
    return {"figures": figures | {"reserved_low_bytes": 30 * GIB, "reserved_high_bytes": 60 * GIB}}


def test_all_rows_from_the_table_to_the_files(capsys, tmp_path):
    choice = Choice(json=tmp_path / "out" / "v.json", markdown=tmp_path / "v.md", verbose=True)
    show_validation(choice, one_by_one(everything))
    text = capsys.readouterr().out
    assert "1324 rows: 718 predicted" in text
    assert "Does it fit" in text
    told = json.loads(choice.json.read_text())
    assert sum(told["rows"].values()) == 1324
    assert {s["kind"] for s in told["scores"]} == {
        "memory", "memory_difference", "time_ratio", "activation_formula", "fits"
    }  # fmt: skip
    assert choice.markdown.read_text().startswith("# Predictions against published measurements\n")


def test_a_limit_spreads_over_what_there_is(capsys, tmp_path):
    choice = Choice(limit=7, json=tmp_path / "v.json")
    show_validation(choice, one_by_one(everything))
    found = json.loads(choice.json.read_text())["scores"]
    assert len(found) == 7
    assert len({s["source"] for s in found}) > 1
    assert "7 of them asked" in capsys.readouterr().out


def command(*words):
    line = [sys.executable, "-m", "analysis", "validate", *words]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command_refuses_an_unknown_source():
    done = command("--source", "torchtitn")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --source=torchtitn: expected one of megatron_lm_golden")


def test_a_source_without_a_case_asks_nobody():
    done = command("--source", "chen2016_sublinear")
    assert (done.returncode, done.stderr) == (0, "")
    assert "5 rows: 0 predicted" in done.stdout
    assert "convolutional and recurrent networks" in done.stdout


def test_torch_is_never_imported():
    code = (
        "import sys, analysis.validate.show, analysis.validate.sources; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)

"""The verb with the suite's own predictor, verified by asking the neighbours of every answer."""

import json
import subprocess
import sys
from pathlib import Path

from analysis.fit.point import point_of
from analysis.fit.question import question_of
from analysis.predictor import Predictors

ROOT = Path(__file__).parents[3]
FIT = (sys.executable, "-m", "analysis", "fit", "--model", "llama_nano", "--hardware", "cpu", "--jobs", "1")


def fit(*more):
    return subprocess.run([*FIT, *more], capture_output=True, text=True, cwd=ROOT, check=False)


def test_neighbours_of_every_answer_agree(tmp_path):
    labels = ("none", "full", "ops(save=attn)")
    out = tmp_path / "fit.json"
    chosen = [word for label in labels for word in ("--policy", label)]
    done = fit(*chosen, "--budget", "64MiB", "--seq-len", "512", "--precision", "fp32", "--json", str(out))
    assert done.returncode == 0, done.stderr
    rows = {row["policy"]: row for row in json.loads(out.read_text(encoding="utf-8"))["policies"]}
    assert rows.keys() == set(labels)
    overrides = {"model": "llama_nano", "batch_size": 1, "precision": "fp32", "optimizer.impl": "fused"}
    question = question_of(overrides, hardware="cpu", policies=labels, budget="64MiB")
    wanted = [(p, rows[question.label(p)]["value"] + more) for p in question.policies for more in (0, 128)]
    with Predictors(1) as predict:
        answers = dict(predict([question.request(policy, value) for policy, value in wanted]))
    points = [point_of(value, answers[i], question.limits) for i, (_, value) in enumerate(wanted)]
    assert [point.verdict for point in points] == ["fits", "does not fit"] * len(labels)
    assert rows["full"]["value"] > rows["none"]["value"]
    for (policy, _), point in zip(wanted[::2], points[::2], strict=True):
        assert rows[question.label(policy)]["figures"]["peak_bytes"] == point.peak_bytes


def test_nothing_fits_ends_with_code_one():
    done = fit("--policy", "full", "--budget", "1MiB")
    assert done.returncode == 1, done.stderr
    assert "Nothing fits a budget of 1.0 MiB, not even 128 tokens." in done.stdout
    assert "Its largest tensors:" in done.stdout

"""The verb under a predictor that answers by a formula: answers, limits, pages and bad input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.fit.ask import answer_fit
from analysis.fit.policies import DEFAULTS, policies_of
from analysis.fit.question import question_of
from analysis.fit.show import Choice, show_fit
from analysis.fit.tables import json_of
from analysis.fit.words import lead_of
from analysis.predictor import one_by_one
from suite.cell import policy_label
from suite.errors import UsageError
from suite.policies import parse_policy

ROOT = Path(__file__).parents[3]
GIB = 2**30
# Bytes of a token and seconds of a token by family.
COSTS = {"none": (4 * 2**20, 1.0), "full": (2**20, 1.25)}
ASSUMPTIONS = {
    "context_bytes": {"value": 7, "source": "usual"},
    "rates": {"value": {"causal_share": 0.5, "kernel_overhead_s": 2e-6}, "source": "data sheet"},
}


def predict(request):
    """20 GiB and what the tokens take; the allocator takes 1 GiB more, and 4 where it fragments."""
    config = request["config"]
    family = config["policy"]["family"]
    tokens = config["seq_len"] * config["batch_size"]
    each, seconds = COSTS.get(family, (3 * 2**20, 1.1))
    if family == "rebuild":
        return {"error": "MatchedNothing: nothing of that name"}
    peak = 20 * GIB + each * tokens
    figures = {"peak_bytes": peak, "static_bytes": 20 * GIB, "step_time_s": seconds * tokens}
    if request["hardware"] != "cpu":
        figures |= {"least_device_used_bytes": peak + GIB, "device_used_bytes": peak + 4 * GIB}
    tensors = [
        {"name": "head.weight", "kind": "parameter", "shape": [8, 4], "dtype": "float32", "bytes": GIB}
    ]
    detail = {"peak_phase": "backward", "peak_composition": {"parameter": 5 * GIB}, "top_tensors": tensors}
    return {"figures": figures, "detail": detail | {"assumptions": ASSUMPTIONS}}


def asked(hardware="h100_80gb", model="llama3_8b", policies=("none", "full"), **more):
    return question_of({"model": model, "batch_size": 1}, hardware=hardware, policies=policies, **more)


def answered(**more):
    return answer_fit(asked(**more), one_by_one(predict))


def by_label(fit):
    return {outcome.label: outcome for outcome in fit.outcomes}


def test_the_largest_length_under_the_card_and_what_it_costs_against_none():
    fit = answered()
    full, none = by_label(fit)["full"], by_label(fit)["none"]
    # 80 GiB less 21 GiB at 1 and 4 MiB a token.
    assert (full.best.value, none.best.value) == (59 * 1024, 59 * 256)
    assert (full.beyond.value, none.beyond.value) == (59 * 1024 + 128, 59 * 256 + 128)
    assert full.step_ratio == 1.25
    assert none.step_ratio == 1.0
    # Between the least and the most of the allocator.
    assert full.best.verdict == none.best.verdict == "tight"
    assert fit.fitting[0] is full
    assert lead_of(fit) == (
        "full reaches 60,416 tokens within the card's 80.0 GiB (tight: with expandable segments). "
        "Without recomputation it reaches 15,104."
    )


def test_a_budget_is_for_the_peak_and_the_card_still_holds():
    fit = answered(budget="30GiB")
    full = by_label(fit)["full"]
    assert (full.best.value, full.best.verdict) == (10 * 1024, "fits")
    assert by_label(answered(budget="100GiB"))["full"].best.value == 59 * 1024


def test_other_axes_and_their_bounds():
    fit = answered(vary="batch_size")
    assert by_label(fit)["full"].best.value == 59 * 1024 // 8192
    fit = answered(model="gpt2_124m")
    found = by_label(fit)["full"]
    assert (found.best.value, found.beyond) == (1024, None)
    assert "learned positions up to model.max_seq_len=1024" in json_of(fit)["policies"][0]["note"]


def test_nothing_fits_is_said_with_the_tightest_peak():
    fit = answered(hardware="cpu", budget="10GiB")
    assert fit.fitting == []
    assert lead_of(fit) == (
        "Nothing fits a budget of 10.0 GiB, not even 128 tokens. The tightest is full: its peak is 20.1 GiB "
        "in the backward phase, 10.1 GiB too much. It holds 5.0 GiB of parameter. Its largest tensors: "
        "head.weight (parameter, 8 x 4 float32, 1.0 GiB). 20.0 GiB are there whatever the policy: spread "
        "them over more devices (--parallel zero=3,dp=8), or take a smaller precision or model."
    )


def test_a_refused_policy_is_listed_with_its_reason():
    fit = answered(policies=("none", "rebuild", "budget"))
    found = by_label(fit)
    assert found["rebuild"].refused == "MatchedNothing: nothing of that name"
    assert "compile" in found["budget(fraction=0.5)"].refused
    assert json_of(fit)["policies"][-1]["verdict"] == "refused"


def test_a_need_that_falls_is_said():
    def falling(request):
        answer = predict(request)
        if request["config"]["seq_len"] == 16384:
            answer["figures"]["least_device_used_bytes"] -= 60 * GIB
        return answer

    fit = answer_fit(asked(policies=("full",)), one_by_one(falling))
    [row] = json_of(fit)["policies"]
    assert not row["monotone"]
    assert row["not_monotone_between"] == [[8192, 16384]]
    assert row["note"].endswith(
        "not monotone between 8,192 and 16,384; the answer is the largest value below the first that does "
        "not fit"
    )


def test_every_point_is_asked_once_and_progress_ends_at_all():
    seen, steps = [], []

    def counting(request):
        seen.append(json.dumps(request, sort_keys=True))
        return predict(request)

    fit = answer_fit(asked(), one_by_one(counting), lambda done, of: steps.append((done, of)))
    assert len(seen) == len(set(seen)) == fit.asked
    assert steps[-1] == (fit.asked, fit.asked)
    assert all(done <= of for done, of in steps)
    for outcome in fit.outcomes:
        assert set(fit.columns) <= {point.value for point in outcome.points}


def test_files_hold_the_answer(tmp_path, capsys):
    paths = {kind: tmp_path / "new" / f"fit.{kind}" for kind in ("json", "html", "markdown")}
    choice = Choice("llama3_8b", "h100_80gb", ("none", "full"), **paths)
    assert show_fit(choice, one_by_one(predict))
    told = json.loads(paths["json"].read_text(encoding="utf-8"))
    assert told["capacity_bytes"] == 80 * GIB
    assert [(row["policy"], row["value"]) for row in told["policies"]] == [("full", 60416), ("none", 15104)]
    assert {"name": "causal_share", "value": "0.5", "source": "data sheet"} in told["assumptions"]
    page = paths["html"].read_text(encoding="utf-8")
    assert 'id="heat"' in page
    assert "Plotly" in page
    outside = page.replace("http://www.w3.org", "")
    assert 'src="http' not in outside
    assert '<link rel="stylesheet"' not in outside
    assert "| full | 60,416 | tight |" in paths["markdown"].read_text(encoding="utf-8")
    printed = capsys.readouterr().out
    assert "60,416" in printed
    assert "causal_share" in printed


def test_only_a_page_asks_for_the_columns_of_a_map():
    fewer = answer_fit(asked(), one_by_one(predict), mapped=False)
    assert fewer.columns == ()
    assert fewer.asked < answered().asked


def test_the_default_policies_are_known_and_different():
    assert len(policies_of(())) == len(DEFAULTS) == 15


@pytest.mark.parametrize(
    ("label", "node"),
    [
        ("full", {"family": "full"}),
        ("segments", {"family": "segments", "n": "sqrt"}),
        ("segments.sqrt", {"family": "segments", "n": "sqrt"}),
        ("segments(n=2)", {"family": "segments", "n": 2}),
        ("segments policy.n=sqrt", {"family": "segments", "n": "sqrt"}),
        ("discard.all", {"family": "discard", "targets": "all"}),
        ("ops.mm+attn", {"family": "ops", "save": "mm+attn"}),
        ("ops(save=attn)", {"family": "ops", "save": "attn"}),
        ("modules policy.targets=[attn,mlp]", {"family": "modules", "targets": ["attn", "mlp"]}),
        ("tiled(mlp=1, loss=4)", {"family": "tiled", "mlp": 1, "loss": 4}),
        (
            "blocks policy.every_n=2 policy.skip_last=true",
            {"family": "blocks", "every_n": 2, "skip_last": True},
        ),
        (
            "assignment policy.blocks={0-3:none,4-31:discard.all} policy.loss=8",
            {"family": "assignment", "blocks": {"0-3": "none", "4-31": "discard.all"}, "loss": 8},
        ),
    ],
)
def test_labels_are_read(label, node):
    assert policies_of([label, label]) == [parse_policy(node)]


@pytest.mark.parametrize("node", [d for d in DEFAULTS if d["family"] != "assignment"])
def test_a_label_that_was_printed_is_read_back(node):
    policy = parse_policy(node)
    label = policy_label({"family": policy.family, "options": policy.options})
    assert policies_of([f"{label}" if "(" in label else f"{label}()"]) == [policy]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"hardware": "h1000"}, "--hardware=h1000: expected one of a100_40gb"),
        ({"hardware": "cpu"}, "--budget=: hardware=cpu has no limit"),
        ({"model": "llama9"}, "model"),
        ({"vary": "width"}, "--vary=width: expected one of seq_len, batch_size, n_layers"),
        ({"budget": "much"}, "--budget=much: expected bytes"),
        ({"budget": "0GiB"}, "--budget=0GiB: expected more than 0"),
        ({"parallel": "tp"}, "--parallel=tp: expected name=value"),
        ({"parallel": "tp=3"}, "parallel.tp=3: must divide"),
        ({"parallel": "sp=8"}, "parallel.sp"),
        ({"assume": ("luck=1",)}, "--assume=luck: expected one of rounding_bytes"),
        ({"assume": ("fused_norms=maybe",)}, "assumptions.fused_norms=maybe: expected true or false"),
        ({"policies": ("fulll",)}, "--policy=fulll: expected one of none, full"),
        ({"policies": ("segments(n=)(",)}, "--policy"),
        ({"policies": ("segments(m=2)",)}, "policy.m=2: options of segments are"),
        ({"vary": "n_layers", "parallel": "pp=4", "step": 2}, "--step=2: expected a multiple of 4"),
        ({"most": 100}, "--most=100: expected at least one step of 128"),
    ],
)
def test_bad_input_is_one_line(more, line):
    with pytest.raises(UsageError) as problem:
        asked(**more)
    assert line in str(problem.value)
    assert "\n" not in str(problem.value)


def test_assumptions_reach_the_predictor():
    question = asked(assume=("context_bytes=1GiB", "bandwidth_bytes_per_s=3e12", "attention_kernel=flash"))
    request = question.request(question.policies[0], 128)
    assert request["assumptions"] == {
        "context_bytes": "1GiB",
        "bandwidth_bytes_per_s": 3e12,
        "attention_kernel": "flash",
    }


def test_a_pipeline_varies_its_depth_in_stages():
    question = asked(vary="n_layers", parallel="pp=4,micro_batches=4")
    assert (question.step, question.start) == (4, 32)


def test_the_command_line_refuses_with_code_two_without_torch():
    program = (
        "import sys; from analysis.__main__ import main; sys.argv[1:] = "
        "['fit', '--model', 'llama_nano', '--hardware', 'cpu']\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr == "error: --budget=: hardware=cpu has no limit: give one, such as 60GiB\n"

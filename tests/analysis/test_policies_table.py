"""``python -m analysis policies``: every family in every format, and refusals in one line."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.policies.rows import rows_of
from analysis.policies.show import show_policies
from analysis.policies.workload import workload_of
from suite.errors import UsageError
from suite.policies import FAMILIES

ROOT = Path(__file__).parents[2]
CARD = ["model=llama3_8b", "seq_len=8192", "batch_size=1", "precision=bf16-true", "device=cuda"]


def shown(capsys, overrides, form="table"):
    show_policies(overrides, form)
    return capsys.readouterr().out


def test_every_family_is_a_row_with_figures_and_formulas():
    cell, own = workload_of(CARD)
    rows = {row.name: row for row in rows_of(cell, own=own)}
    assert {row.family for row in rows.values()} == FAMILIES.keys()
    assert not any(row.own for row in rows.values())
    found = rows["discard.all"]
    assert found.saved_formula == "u[2 + r(1+2κ) + 2φ]"
    assert (found.saved_units, found.saved_per_block_bytes) == (10.5, 10.5 * 64 * 2**20)
    assert rows["full"].replay_ratio == pytest.approx(0.794, abs=1e-3)
    assert rows["full"].step_ratio == pytest.approx(0.241, abs=1e-3)
    assert rows["segments.2"].transient_bytes == 2 * rows["full"].transient_bytes
    assert rows["rebuild.norm+act"].on_front
    assert not rows["ops.mm+attn"].on_front
    assert rows["offload.block_inputs"].host_bytes == 31 * 64 * 2**20
    assert rows["compressed.inputs"].rounded
    assert not any(row.on_front for row in rows.values() if row.host_bytes or row.rounded)
    assert rows["budget(fraction=0.5)"].reason.startswith("policy=budget: only compiled code has a budget")


def test_the_policy_of_a_person_is_marked_and_an_approximation_too(capsys):
    text = shown(capsys, ["policy=ops", "policy.save=[aten.mm,aten.add]"])
    (line,) = [line for line in text.splitlines() if "(yours)" in line]
    assert re.search(r"ops\.mm\+add \(yours\) +≈\d+\.\d\du", line)
    assert "≈ An estimate" in text
    assert sum("(yours)" in line for line in shown(capsys, ["policy=none"]).splitlines()) == 1


def test_what_cannot_apply_says_why(capsys):
    text = shown(capsys, ["attention=eager"])
    (line,) = [line for line in text.splitlines() if line.startswith(" ops.attn ")]
    assert "attention=eager runs no fused attention" in line


def test_the_legend_gives_each_symbol_in_use_its_value(capsys):
    text = shown(capsys, CARD)
    for line in ("r    = 1 ", "κ    = 0.25 ", "φ    = 3.5 ", "u    = 64.0 MiB (1u)", "Fs   = 1.1 TFLOP"):
        assert line in text
    assert "u[2 + r(1+2κ) + 4φ] + 2N + C" in text
    assert "Kernels assumed on cuda: RMSNorm fused, attention fused." in text
    assert "\x1b" not in text
    assert "\nD " not in text


def test_a_mixture_has_formulas_and_a_compiled_cell_estimates(capsys):
    text = shown(capsys, ["model=mixtral_8x7b", "precision=bf16-true", "device=cuda"])
    assert "φ    = 7 " in text
    assert "u[2 + r(1+2κ) + 4φ] + 2N + C + P" in text
    text = shown(capsys, [*CARD, "compile=block"])
    (line,) = [line for line in text.splitlines() if line.startswith(" budget")]
    assert re.search(r"≈\d+\.\d\du .* u \+ 0\.5\(A - u\) ", line)


def test_json_and_csv_carry_the_same_rows(capsys):
    told = json.loads(shown(capsys, CARD, "json"))
    rows = list(csv.DictReader(io.StringIO(shown(capsys, CARD, "csv"))))
    assert [row["name"] for row in rows] == [row["name"] for row in told["policies"]]
    assert float(rows[1]["saved_bytes"]) == told["policies"][1]["saved_bytes"]
    assert told["symbols"]["u"]["value"] == 64 * 2**20
    assert told["workload"]["device"] == "cuda"


def test_markdown_is_one_table(capsys):
    text = shown(capsys, CARD, "markdown")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[1] == "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |"
    assert {row.count("|") for row in rows} == {11}
    assert "| discard.all | 10.50u | 672.0 |" in text


def test_it_fits_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("NO_COLOR", "1")
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown(capsys, CARD)).splitlines()
    assert max(map(len, lines)) <= 80
    assert "   u[2 + r(1+2κ) + 2φ]" in [line[:22] for line in lines]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model=nope"], "model=nope: no such model; expected one of"),
        (["seq_len"], "seq_len: not an override"),
        (["seq_len=1,2"], "seq_len=1,2: several values for one key; the table is of one workload"),
        (["+sweep=long_seq"], "sweep=long_seq: describes many workloads"),
        (["policy=segments", "policy.n=0"], "policy.n=0: expected a whole number"),
        (["seq_len=0"], "seq_len=0: expected a whole number >= 1"),
        (["model=null"], "model=null: expected one of gpt2_124m"),
    ],
)
def test_refusals_name_the_key_and_what_is_allowed(overrides, words):
    with pytest.raises(UsageError, match="^" + re.escape(words)):
        show_policies(overrides, "table")


def test_an_unknown_format_is_exit_code_2_and_torch_stays_out():
    command = [sys.executable, "-m", "analysis", "policies", "--format", "xml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    allowed = "expected one of table, markdown, json, csv"
    assert (done.returncode, done.stderr) == (2, f"error: --format=xml: {allowed}\n")
    code = (
        "import sys; from analysis.policies.show import show_policies; show_policies([], 'csv'); "
        "print(sorted({'torch', 'lightning', 'plotly'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr

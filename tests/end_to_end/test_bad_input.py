"""Bad input: one clear line, exit code 2, and nothing on disk that was not there."""

from pathlib import Path

import pytest
from suite_process import SMALL, suite

CASES = [
    (["policy=magic"], "policy=magic: no such policy; expected one of assignment, blocks"),
    (["model=llama_nan"], "did you mean llama_nano?"),
    (["seqlen=3"], "seqlen=3: no such key; keys are adopt"),
    (["model.n_layer=3"], "did you mean n_layers?"),
    (["polcy=full"], "did you mean policy?"),
    (["seq_len"], "seq_len: not an override; expected key=value"),
    (["+sweep=short"], "sweep=short: no such sweep; expected one of"),
    (["seq_len=-3"], "seq_len=-3: expected a whole number >= 1"),
    (["model.n_heads=5"], "model.n_heads=5: must divide model.d_model=96"),
    (["policy=ops", "policy.save=attn", "attention=eager"], "runs no fused attention operator"),
    (["policy=segments", "policy.n=99"], "policy.n=99: the model has 4 blocks"),
    (["budget=1KiB"], "budget=1.0 KiB: the parameters alone take"),
    (["paths.runs=/dev/null/x"], "paths.runs=/dev/null/x: expected a folder that can be written"),
    (["-m", "seq_len=8,16", "paths.runs=/dev/null/x"], "paths.runs=/dev/null/x: expected a folder that"),
    (["tracking.uri=http://127.0.0.1:9"], "tracking.uri=http://127.0.0.1:9"),
    (["parallel.tp=2"], "parallel=more than one device: only predicted so far: mode=predict"),
    (["mode=predict", "parallel.tp=5"], "parallel.tp=5: must divide model.n_heads"),
    (["mode=predict", "assumptions.loss_kernel=x"], "assumptions.loss_kernel=x: expected one of torch"),
    (["device=cuda"], "device.type=cuda: this machine has"),
    (["-m", "seq_len=16,-1"], "seq_len=-1: expected a whole number >= 1"),
    (["model=gpt_nano", "seq_len=2048"], "error: seq_len=2048: gpt_nano has learned positions up to"),
    (
        ["policy=blocks", "policy.select=range-0-99"],
        "range-0-99 names block 98; the model has blocks 0 to 3",
    ),
    (["-m", "policy=full", "reference=ful", "seq_len=8,16"], "did you mean full?"),
    (["reference=segments"], "reference=segments: no cell of llama_nano s=256"),
    (["model=null"], "model=null: expected one of gpt2_124m"),
    (["-m", "policy=full,null"], "policy=null: expected one of assignment"),
    (
        ["seq_len=8,16"],
        "seq_len=8,16: several values; -m sweeps over them: python -m suite -m seq_len=8,16",
    ),
    (["--foo"], "unrecognized arguments: --foo"),
    (["+sweep.product=[]"], "sweep.product=[]: no such key; keys are base, name, products, scaled"),
    (["tracking.uri=foo://bar", "plan=true"], "MLflow has no store for foo://; expected sqlite:///"),
    (
        ["-m", "policy=none,blocks", "policy.every_n=2,3"],
        """'sweep.products=[{policy: [..., "blocks policy.every_n=…"]}]'""",
    ),
]


@pytest.mark.parametrize(
    ("words", "message"), CASES, ids=lambda v: " ".join(v) if isinstance(v, list) else ""
)
def test_one_line_and_exit_code_2(tmp_path: Path, words: list[str], message: str) -> None:
    if "device=cuda" in words:
        import torch

        if torch.accelerator.is_available():
            words, message = ["device=mps"], "device.type"
            if torch.accelerator.current_accelerator() == torch.device("mps"):
                words = ["device=xpu"]
    done = suite(tmp_path, *words)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert not list(tmp_path.rglob("*.json"))


def test_the_help_and_the_configuration_are_hydra_s_own(tmp_path: Path) -> None:
    shown = suite(tmp_path, "--cfg", "job", *SMALL)
    assert shown.returncode == 0
    assert "seq_len: 16" in shown.stdout
    assert "family: llama" in shown.stdout
    helped = suite(tmp_path, "--help")
    assert helped.returncode == 0
    assert "python -m suite +sweep=long_seq" in helped.stdout


def test_tab_completion_offers_what_exists(tmp_path: Path) -> None:
    import subprocess
    import sys

    from suite_process import environment

    installed = suite(tmp_path, "-sc", "install=bash")
    assert installed.returncode == 0
    assert "hydra_bash_completion" in installed.stdout
    line = "suite policy="
    env = {**environment(), "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_CWORD": "1"}
    asked = subprocess.run(
        [sys.executable, "-m", "suite", "-sc", "query=bash"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert {"policy=none", "policy=full", "policy=segments"} <= set(asked.stdout.split())


def test_neither_the_parent_nor_the_analysis_imports_torch(tmp_path: Path) -> None:
    import subprocess
    import sys

    from suite_process import environment

    program = (
        "import sys, suite.__main__, runners.command, suite.tracking, analysis.__main__, analysis.report;"
        "bad = [m for m in ('torch', 'lightning', 'mlflow', 'optuna', 'submitit') if m in sys.modules];"
        "sys.exit(', '.join(bad) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

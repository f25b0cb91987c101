"""From a composed configuration to a cell and a session, and every refusal on the way."""

from typing import Any

import hydra
import pytest
from make_cell import CONF
from omegaconf import DictConfig

from suite.cell import Cell
from suite.config.hardware import match_hardware
from suite.config.load import check_budget, check_policy, load_cell, load_session
from suite.config.schema import HardwareConfig
from suite.errors import Unsupported, UsageError

CPU = {"type": "cpu", "cores": 2, "memory_bytes": 8 * 2**30, "name": "cpu"}


def compose(*overrides: str) -> DictConfig:
    with hydra.initialize_config_dir(str(CONF.resolve()), version_base="1.3"):
        return hydra.compose("config", overrides=list(overrides))


def cell(*overrides: str) -> Cell:
    return load_cell(compose(*overrides), CPU)


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


REFUSED = [
    ("seq_len=0", "seq_len=0: expected a whole number >= 1"),
    ("seq_len=abc", "seq_len=abc: expected a whole number"),
    ("seq_len=1.5", "seq_len=1.5"),
    ("batch_size=-1", "batch_size=-1"),
    ("precision=fp16", "precision=fp16: expected one of fp32, bf16-mixed, bf16-true"),
    ("attention=linear", "attention=linear: expected one of eager, sdpa, flash"),
    ("compile=trunk", "compile=trunk: expected one of none, block, model"),
    ("compile_backend=tvm", "compile_backend=tvm: expected one of inductor, aot_eager"),
    ("model.n_heads=5", "model.n_heads=5: must divide model.d_model"),
    ("model.n_layers=many", "model.n_layers=many: expected int"),
    ("+model.depth=4", "model.depth=4: no such key; keys are name, family"),
    ("optimizer.kind=adam", "optimizer.kind=adam: expected one of adamw, sgd"),
    ("data=bytes", "data.path="),
    ("device.threads=9999", "device.threads=9999"),
    ("model.dropout=1.0", "model.dropout=1.0"),
]


@pytest.mark.parametrize(("override", "message"), REFUSED)
def test_a_bad_workload_is_one_line_with_key_value_and_what_is_allowed(override: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        cell(override)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


SESSION_REFUSED = [
    ("rounds=0", "rounds=0"),
    ("passes=[speed]", "passes=['speed']: some of memory, flops, parity, time"),
    ("retry=[failed]", "retry=['failed']: some of all, ok"),
    ("on_failure=ignore", "on_failure=ignore: expected one of continue, stop"),
    ("mode=guess", "mode=guess"),
    ("budget=lots", "budget=lots: expected bytes, such as 24GiB"),
    ("budget=150%", "budget=150%: expected a percentage"),
    ("budget=0", "budget=0: expected more than 0 bytes"),
    ("limits.timeout_s=0", "limits.timeout_s=0.0"),
    ("trainer.steps=0", "trainer.steps=0"),
    ("trainer.warmup_min_steps=99", "trainer.warmup_min_steps=99"),
    ("adopt=maybe", "adopt=maybe: expected true or false"),
    ("paths.runs=/dev/null/runs", "paths.runs=/dev/null/runs: expected a folder that can be written"),
]


@pytest.mark.parametrize(("override", "message"), SESSION_REFUSED)
def test_a_bad_session_is_refused_the_same_way(override: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_session(compose(override), "name", HardwareConfig(), CPU)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "ü\n"])
def test_a_name_that_is_no_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"sweep\.name"):
        load_session(compose(), name, HardwareConfig(), CPU)


def test_a_budget_in_units_and_in_percent() -> None:
    assert load_session(compose("budget=1.5GiB"), "n", HardwareConfig(), CPU).budget_bytes == 3 * 2**29
    assert load_session(compose("budget=50%"), "n", HardwareConfig(), CPU).budget_bytes == 4 * 2**30
    assert load_session(compose(), "n", HardwareConfig(), CPU).budget_bytes is None


def test_values_that_cannot_be_together_are_unsupported_and_a_usage_error() -> None:
    too_long = cell("model=gpt_nano", "seq_len=2048")
    for kind in (UsageError, Unsupported):
        with pytest.raises(kind, match=r"^seq_len=2048: gpt_nano has learned positions up to"):
            check_policy(too_long)


def test_a_budget_below_the_parameters_is_refused() -> None:
    one = cell("model=llama3_8b")
    with pytest.raises(UsageError, match=r"budget=24\.0 GiB: the parameters alone take 29\.9 GiB"):
        check_budget(24 * 2**30, [one])
    half = cell("model=llama3_8b", "precision=bf16-true")
    check_budget(24 * 2**30, [half, one])


def test_what_changes_a_cell_s_identity_and_what_does_not() -> None:
    base = cell()
    assert cell("rounds=9", "budget=1GiB", "paths.runs=elsewhere", "retry=[oom]").id == base.id
    assert cell("model.source=another").id == base.id
    for change in ("seq_len=128", "seed=1", "optimizer=sgd", "model.n_layers=5", "device.threads=1"):
        assert cell(change).id != base.id
    assert cell("policy=none").workload_id == base.workload_id
    assert cell("seq_len=128").workload_id != base.workload_id


@pytest.mark.parametrize("path", sorted((CONF / "model").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_preset_is_a_cell_and_states_its_source(path: Any) -> None:
    one = cell(f"model={path.stem}", "seq_len=64")
    assert one.config.model.name == path.stem
    assert len(one.config.model.source) > 10


def test_hardware_is_matched_by_name_and_then_by_memory() -> None:
    node = compose("hardware=auto").hardware
    entries = [
        compose(f"hardware={p.stem}").hardware
        for p in sorted((CONF / "hardware").glob("*.yaml"))
        if p.stem != "auto"
    ]

    def matched(name: str, memory: float) -> str:
        device = {"type": "cuda", "name": name, "memory_bytes": int(memory)}
        return match_hardware(node, lambda: entries, device).name

    assert match_hardware(node, lambda: entries, CPU).name == "cpu"
    assert matched("NVIDIA A100-SXM4-80GB", 79.2 * 2**30) == "a100_80gb"
    assert matched("NVIDIA A100-SXM4-40GB", 39.4 * 2**30) == "a100_40gb"
    assert matched("NVIDIA H100 80GB HBM3", 79.1 * 2**30) == "h100_80gb"
    assert matched("NVIDIA H200", 139.8 * 2**30) == "h200_141gb"
    unknown = match_hardware(node, lambda: entries, {"type": "cuda", "name": "Quantum 9"})
    assert unknown.peak_flops_per_s == {}
    assert match_hardware(compose("hardware=h100_80gb").hardware, lambda: [], CPU).name == "h100_80gb"


@pytest.mark.parametrize("path", sorted((CONF / "hardware").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_hardware_entry_states_dense_peaks_and_their_source(path: Any) -> None:
    from suite.config.load import load_hardware

    entry = load_hardware(compose(f"hardware={path.stem}").hardware)
    assert entry.name == path.stem
    if entry.name in ("auto", "cpu"):
        return
    assert set(entry.peak_flops_per_s) == {"fp32", "bf16"}
    assert entry.bandwidth_bytes_per_s > 1e11
    assert entry.memory_bytes >= 16e9
    assert entry.source.startswith("http") or "data sheet" in entry.source

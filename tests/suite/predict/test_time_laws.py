"""What must hold of a predicted time, whatever the rates; no measured time is asserted."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import yaml
from make_cell import CONF, POLICIES, make_cell, policy_id

from suite.config.schema import HardwareConfig
from suite.errors import UsageError
from suite.predict.time.calibrate import calibrate
from suite.predict.time.classes import class_of
from suite.predict.time.kernels import kernel_s, traffic_s
from suite.predict.time.measured import measure_operators
from suite.predict.time.rates import Rates, rates_of
from suite.predict.time.roofline import TimeEstimate, predict_time
from suite.predict.time.stored import load, load_operators, save, save_operators
from suite.predict.time.table import OperatorTable, key_of
from suite.predict.trace.compose import trace_step
from suite.predict.trace.step import OperatorRun, StepTrace

CPU = Rates(
    device="cpu",
    threads=1,
    asynchronous=False,
    matmul_fp32_flops_per_s=9e10,
    matmul_bf16_flops_per_s=2e11,
    matmul_half_size=10.0,
    bandwidth_bytes_per_s=3e10,
    cache_bytes=4e6,
    cache_bandwidth_bytes_per_s=7e10,
    exponential_bytes_per_s=8e9,
    kernel_overhead_s=0.0,
)


def card(name: str = "h100_80gb", **changes: Any) -> HardwareConfig:
    entry = yaml.safe_load((CONF / "hardware" / f"{name}.yaml").read_text())
    numbers = {
        k: float(v) if k.endswith("_per_s") and not isinstance(v, dict) else v for k, v in entry.items()
    }
    numbers["peak_flops_per_s"] = {k: float(v) for k, v in entry["peak_flops_per_s"].items()}
    return HardwareConfig(**{**numbers, **changes})


GPU = rates_of(card(), {})


def product(**changes: Any) -> OperatorRun:
    run = OperatorRun(
        "aten::mm", "blocks.*.mlp", "forward", False, 10**9, 10**6, 10**6, "float32", ((8, 8), (8, 8))
    )
    return replace(run, **changes)


def predicted(rates: Rates, policy: dict[str, Any] | None = None, **changes: Any) -> TimeEstimate:
    config = make_cell(policy=policy, **changes).config
    return predict_time(trace_step(config), config, rates)


@pytest.mark.parametrize("rates", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("operator", ["aten::mm", "aten::mul.Tensor", "aten::_softmax"])
def test_more_flops_or_bytes_never_take_less(rates: Rates, operator: str) -> None:
    flops = [0, 10**3, 10**6, 10**9, 10**12] if operator == "aten::mm" else [0]
    sizes = [0, 10**3, 10**6, 4 * 10**6, 10**7, 10**9]
    by_flops = [kernel_s(product(operator=operator, flops=n), rates, causal=True) for n in flops]
    by_bytes = [
        kernel_s(product(operator=operator, flops=0, read_bytes=n), rates, causal=True) for n in sizes
    ]
    assert by_flops == sorted(by_flops)
    assert by_bytes == sorted(by_bytes)


def test_a_product_is_bound_by_the_slower_of_arithmetic_and_memory() -> None:
    rates = replace(GPU, matmul_half_size=0.0, kernel_overhead_s=0.0)
    arithmetic = product(flops=10**12, dtype="bfloat16")
    assert kernel_s(arithmetic, rates, causal=True) == pytest.approx(
        1e12 / (989e12 * rates.matmul_efficiency)
    )
    memory = product(flops=1, read_bytes=10**9, written_bytes=0)
    assert kernel_s(memory, rates, causal=True) == pytest.approx(
        1e9 / (3.35e12 * rates.bandwidth_efficiency)
    )


def test_a_causal_kernel_runs_half_of_what_is_counted() -> None:
    run = product(operator="aten::_scaled_dot_product_flash_attention", flops=10**13, dtype="bfloat16")
    both = kernel_s(run, GPU, causal=False), kernel_s(run, GPU, causal=True)
    assert both[0] - GPU.kernel_overhead_s == pytest.approx(2 * (both[1] - GPU.kernel_overhead_s))


def test_bytes_beyond_the_cache_go_at_the_memorys_pace() -> None:
    assert traffic_s(4e6, CPU) == pytest.approx(4e6 / 7e10)
    assert traffic_s(5e6, CPU) == pytest.approx(4e6 / 7e10 + 1e6 / (3e10 * CPU.bandwidth_efficiency))


@pytest.mark.parametrize("rates", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("policy", POLICIES, ids=policy_id)
def test_phases_and_classes_add_up_to_the_step(rates: Rates, policy: dict[str, Any]) -> None:
    found = predicted(rates, policy)
    assert sum(found.phases_s.values()) == pytest.approx(found.step_time_s)
    assert sum(found.classes_s.values()) == pytest.approx(found.step_time_s)
    assert 0 <= found.replay_s <= found.phases_s["backward"]
    assert min(*found.phases_s.values(), *found.classes_s.values()) >= 0


@pytest.mark.parametrize("rates", [CPU, GPU], ids=["cpu", "gpu"])
def test_what_replays_more_takes_longer(rates: Rates) -> None:
    chain = [
        predicted(rates, policy).step_time_s
        for policy in (
            {"family": "none"},
            {"family": "blocks", "every_n": 2},
            {"family": "full"},
            {"family": "full", "early_stop": False},
        )
    ]
    assert chain == sorted(set(chain))
    assert predicted(rates).replay_s == 0


def test_the_slower_of_host_and_device_sets_an_accelerators_pace() -> None:
    config = make_cell().config
    trace = StepTrace(log=trace_step(config).log, operators=Counter({product(flops=10**13): 3}))
    busy = predict_time(trace, config, GPU)
    assert busy.classes_s["host"] == 0
    slow = predict_time(trace, config, replace(GPU, forward_dispatch_s=10.0))
    assert slow.step_time_s == pytest.approx(30.0)
    assert slow.classes_s["matmul"] == pytest.approx(busy.step_time_s)


def test_what_is_compiled_moves_less_and_dispatches_nothing() -> None:
    config = make_cell().config
    trace = trace_step(config)
    eager = predict_time(trace, config, GPU)
    compiled = predict_time(trace, replace(config, compile="block"), GPU)
    assert compiled.classes_s["elementwise"] < eager.classes_s["elementwise"]
    assert compiled.phases_s["forward"] < eager.phases_s["forward"]
    assert compiled.phases_s["optimizer"] == pytest.approx(eager.phases_s["optimizer"])


def test_selective_checkpointing_costs_the_host() -> None:
    policy = {"family": "ops", "save": "mm+attn"}
    free = predicted(replace(CPU, selective_dispatch_s=0.0), policy).step_time_s
    assert predicted(CPU, policy).step_time_s > free
    same = [
        predicted(replace(CPU, selective_dispatch_s=s), {"family": "full"}).step_time_s for s in (0.0, 1.0)
    ]
    assert same[0] == same[1]


def test_a_host_link_that_is_slow_shows_in_what_offloads() -> None:
    policy = {"family": "offload", "what": "saved", "min_bytes": 0}
    slow = replace(GPU, host_link_bytes_per_s=1e6)
    assert predicted(slow, policy).step_time_s > predicted(GPU, policy).step_time_s
    assert predicted(slow).step_time_s == predicted(GPU).step_time_s


def test_rates_survive_json() -> None:
    rates = rates_of(card(), {"bandwidth_efficiency": 0.5})
    again = Rates.from_json(rates.to_json())
    assert again == rates
    assert again.overridden == ("bandwidth_efficiency",)
    assert again.bandwidth_efficiency == 0.5
    with pytest.raises(ValueError, match="not a calibration"):
        Rates.from_json(json.dumps({"device": "cpu"}))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"speed": 1}, r"rates\.speed=1: unknown; expected one of asynchronous, matmul_fp32"),
        ({"bandwidth_efficiency": 1.5}, r"rates\.bandwidth_efficiency=1\.5: expected a share"),
        ({"kernel_overhead_s": "fast"}, r"rates\.kernel_overhead_s=fast: expected a number"),
        ({"matmul_efficiency": 0}, r"rates\.matmul_efficiency=0: expected a finite number above 0"),
        ({"bandwidth_bytes_per_s": float("nan")}, r"expected a finite number"),
        ({"asynchronous": 1}, r"rates\.asynchronous=1: expected true or false"),
    ],
)
def test_overrides_that_cannot_be_are_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rates_of(card(), overrides)


def test_hardware_without_peaks_is_refused() -> None:
    with pytest.raises(UsageError, match="hardware=cpu: states no peak"):
        rates_of(HardwareConfig(name="cpu", device="cpu"), {})


def test_every_card_has_rates() -> None:
    for path in sorted((CONF / "hardware").glob("*gb.yaml")):
        rates = rates_of(card(path.stem), {})
        assert rates.source.startswith(path.stem)
        assert predicted(rates).step_time_s > 0


def test_a_tables_seconds_are_found_by_side_and_size() -> None:
    run = product()
    table = OperatorTable({key_of(run): 1.0}, {"forward aten::mm": 1e-9}, 0.5, 0.25)
    assert table.seconds(run) == 1.0
    assert table.seconds(replace(run, phase="backward", replay=True)) == 1.0
    assert table.seconds(replace(run, flops=2 * 10**9, shapes=())) == pytest.approx(2.0)
    assert table.seconds(replace(run, phase="backward")) is None
    assert OperatorTable.from_json(table.to_json()) == table


def test_operators_have_the_class_that_bounds_them() -> None:
    known = {
        ("aten::mm", 8): "matmul",
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", 8): "attention",
        ("aten::mul.Tensor", 0): "elementwise",
        ("aten::cat", 0): "copy",
        ("aten::_unsafe_view", 0): "host",
    }
    assert {key: class_of(*key) for key in known} == known


def test_a_calibration_is_found_again_by_machine_and_threads(tmp_path: Any) -> None:
    machine = {"cpu": "one", "host": "a", "load_1min": 0.1}
    path = save(CPU, machine, tmp_path)
    assert path.parent == tmp_path
    assert load({**machine, "host": "b"}, tmp_path, 1) == CPU
    assert load(machine, tmp_path, 2) is None
    assert load({**machine, "cpu": "two"}, tmp_path, 1) is None
    path.write_text("{")
    assert load(machine, tmp_path, 1) is None


def test_measured_operators_cover_a_policys_step(tmp_path: Any) -> None:
    config = make_cell(policy={"family": "full"}).config
    table = measure_operators(config, seconds=0.0)
    trace = trace_step(config)
    missing = {run.operator for run in trace.operators if table.seconds(run) is None}
    assert not missing - {"aten::div.Tensor", "aten::clone"}  # the loop's own, on a scalar
    found = predict_time(trace, config, CPU, table)
    assert sum(found.phases_s.values()) == pytest.approx(found.step_time_s)
    assert found.measured_share > 0
    machine = {"cpu": "one"}
    save_operators(table, config, machine, tmp_path)
    assert load_operators(make_cell(policy={"family": "none"}).config, machine, tmp_path) == table
    assert load_operators(make_cell(seq_len=64).config, machine, tmp_path) is None


def test_a_calibration_has_every_rate() -> None:
    rates = calibrate("cpu", 1)
    assert (rates.device, rates.threads, rates.asynchronous) == ("cpu", 1, False)
    assert rates.matmul_fp32_flops_per_s > 0
    assert rates.matmul_bf16_flops_per_s > 0
    assert rates.bandwidth_bytes_per_s > 0
    assert predicted(rates).step_time_s > 0

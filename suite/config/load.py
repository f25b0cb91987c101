"""From what Hydra composed to typed cells and a typed session; whatever does not fit is refused here.

Torch-free, and the only place that turns a ``DictConfig`` into the suite's own classes.
"""

import contextlib
import dataclasses
import difflib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, ConfigTypeError, OmegaConfBaseException, ValidationError

from suite.cell import Cell
from suite.config.schema import (
    ATTENTIONS,
    COMPILE_BACKENDS,
    COMPILES,
    MODES,
    PASSES,
    PRECISIONS,
    STATUSES,
    CellConfig,
    DataConfig,
    DeviceConfig,
    HardwareConfig,
    LimitsConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    PathsConfig,
    SessionConfig,
    TrackingConfig,
    TrainerConfig,
)
from suite.errors import Impossible, UsageError
from suite.models.check import check_kernel, check_model
from suite.models.shape import parameter_count
from suite.policies import make_policy, parse_policy
from suite.predict.layout.rank import check_parallel
from suite.training.check import check_compiler, check_training
from suite.units import parse_bytes, show_apart


def load_cell(cfg: DictConfig, device: dict[str, Any]) -> Cell:
    """The cell that one composed configuration describes, checked but for what :func:`check_policy` says.

    Args:
        cfg: composed by Hydra.
        device: the fingerprint of the device that ``device.type`` resolved to: ``type``, ``cores``.

    Raises UsageError naming the key, the value and what is allowed.
    """
    threads = _typed(cfg, "device", DeviceConfig).threads
    _check(0 <= threads <= (os.cpu_count() or 1), "device.threads", threads, f"0 to {os.cpu_count()}")
    compile_ = _choice(cfg, "compile", COMPILES)
    backend = _choice(cfg, "compile_backend", COMPILE_BACKENDS)
    config = CellConfig(
        model=_typed(cfg, "model", ModelConfig),
        policy=parse_policy(_plain(cfg, "policy")),
        seq_len=_whole(cfg, "seq_len", 1),
        batch_size=_whole(cfg, "batch_size", 1),
        precision=_choice(cfg, "precision", PRECISIONS),
        attention=_choice(cfg, "attention", ATTENTIONS),
        compile=compile_,
        compile_backend="" if compile_ == "none" else backend,
        optimizer=_typed(cfg, "optimizer", OptimizerConfig),
        data=_typed(cfg, "data", DataConfig),
        device=str(device["type"]),
        threads=threads or int(device.get("cores") or os.cpu_count() or 1),
        seed=_whole(cfg, "seed", 0),
        parallel=_typed(cfg, "parallel", ParallelConfig),
    )
    with contextlib.suppress(Impossible):
        check_model(config)
    check_training(config)
    check_parallel(config)
    alone = config.parallel == ParallelConfig() or _choice(cfg, "mode", MODES) == "predict"
    _check(alone, "parallel", "more than one device", "only predicted so far: mode=predict")
    return Cell(config)


def check_policy(cell: Cell, *, here: bool = True) -> None:
    """Raise Unsupported where the cell's model, kernel, compiler or policy cannot do its workload.

    The compiler is not looked for where the cell does not run ``here``.
    """
    check_model(cell.config)
    check_kernel(cell.config)
    if here:
        check_compiler(cell.config)
    policy = make_policy(cell.config.policy)
    policy.check(cell.config)
    policy.check_compile(cell.config)


def check_budget(budget_bytes: int | None, cells: list[Cell]) -> None:
    """Raise UsageError if the budget does not even hold the parameters of any cell's model."""
    if budget_bytes is None or not cells:
        return
    least = min(_parameter_bytes(cell.config) for cell in cells)
    budget, parameters = show_apart(budget_bytes, least)
    _check(
        budget_bytes >= least,
        "budget",
        budget,
        f"the parameters alone take {parameters}: expected more than that",
    )


def load_session(
    cfg: DictConfig,
    name: str,
    hardware: HardwareConfig,
    device: dict[str, Any],
    cell_passes: Mapping[str, tuple[str, ...]] | None = None,
) -> SessionConfig:
    """How the run goes, checked.

    Args:
        cfg: composed by Hydra for the whole session.
        name: of the sweep.
        hardware: the entry that matches the device.
        device: the fingerprint, for a budget in percent of its memory.
        cell_passes: of the cells that get other passes than the session's, by id.

    Raises UsageError naming the key, the value and what is allowed.
    """
    retry = tuple(str(s) for s in _plain(cfg, "retry"))
    bad = [s for s in retry if s not in (*STATUSES, "all")]
    _check(not bad, "retry", list(retry), f"some of all, {', '.join(STATUSES)}")
    trainer = _typed(cfg, "trainer", TrainerConfig)
    _check(trainer.steps >= 1, "trainer.steps", trainer.steps, "a whole number >= 1")
    _check(
        0 <= trainer.warmup_min_steps <= trainer.warmup_max_steps,
        "trainer.warmup_min_steps",
        trainer.warmup_min_steps,
        "a whole number from 0 to trainer.warmup_max_steps",
    )
    limits = _typed(cfg, "limits", LimitsConfig)
    _check(limits.timeout_s > 0, "limits.timeout_s", limits.timeout_s, "seconds > 0")
    if limits.host_memory != "auto":
        parse_bytes(limits.host_memory, "limits.host_memory")
    paths = _typed(cfg, "paths", PathsConfig)
    for key in ("runs", "reports"):
        check_writable(f"paths.{key}", Path(getattr(paths, key)))
    budget = OmegaConf.select(cfg, "budget")
    tracking = _typed(cfg, "tracking", TrackingConfig)
    return SessionConfig(
        name=_folder_name(name),
        passes=load_passes(cfg),
        cell_passes=dict(cell_passes or {}),
        rounds=_whole(cfg, "rounds", 1),
        trainer=trainer,
        limits=limits,
        tracking=tracking,
        paths=paths,
        hardware=hardware,
        device_ids=_typed(cfg, "device", DeviceConfig).ids,
        budget_bytes=None if budget is None else _budget(budget, device),
        reference=str(OmegaConf.select(cfg, "reference")),
        retry=retry,
        on_failure=_choice(cfg, "on_failure", ("continue", "stop")),
        max_failures=_whole(cfg, "max_failures", 0),
        adopt=_flag(cfg, "adopt"),
        plan=_flag(cfg, "plan"),
        mode=_choice(cfg, "mode", MODES),
        report=_flag(cfg, "report"),
        assumptions=load_assumptions(cfg),
        fingerprint=dict(device),
    )


def load_assumptions(cfg: DictConfig) -> dict[str, Any]:
    """What the user sets of a prediction's assumptions, by name. Raises UsageError for an unknown one."""
    node = OmegaConf.select(cfg, "assumptions")
    _check(isinstance(node, DictConfig), "assumptions", node, "expected names with values")
    found: Any = OmegaConf.to_container(node, resolve=True)
    given = {name: value for name, value in found.items() if value is not None}
    for name, value in given.items():
        _check_assumption(f"assumptions.{name}", value)
    return given


_ASSUMED_CHOICES = {
    "assumptions.loss_kernel": ("torch", "in_place", "fused"),
    "assumptions.attention_kernel": ("flash", "efficient", "math", "eager"),
}
_ASSUMED_FLAGS = ("assumptions.fused_norms", "assumptions.ddp_buckets")


def _check_assumption(key: str, value: Any) -> None:
    allowed = _ASSUMED_CHOICES.get(key)
    if allowed is not None:
        _check(value in allowed, key, value, f"expected one of {', '.join(allowed)}")
    elif key in _ASSUMED_FLAGS:
        _check(isinstance(value, bool), key, value, "expected true or false")
    elif key.endswith("_bytes"):
        parse_bytes(value, key)
    else:
        good = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        _check(good, key, value, "expected a whole number >= 1")


def load_passes(cfg: DictConfig) -> tuple[str, ...]:
    """The passes that one composed configuration asks for: its mode's, and where it measures its own."""
    passes, measured = tuple(_plain(cfg, "passes")), [p for p in PASSES if p != "predict"]
    unknown = [p for p in passes if p not in measured]
    _check(bool(passes) and not unknown, "passes", list(passes), f"some of {', '.join(measured)}")
    mode = _choice(cfg, "mode", MODES)
    return {"measure": passes, "predict": ("predict",), "both": ("predict", *passes)}[mode]


def load_hardware(node: Any) -> HardwareConfig:
    """One file of ``conf/hardware/`` as its class."""
    hardware: HardwareConfig = _to_object(node, "hardware", HardwareConfig)
    return hardware


def _typed(cfg: DictConfig, key: str, schema: type[Any]) -> Any:
    return _to_object(OmegaConf.select(cfg, key), key, schema)


def _to_object(node: Any, key: str, schema: type[Any]) -> Any:
    fields = [f.name for f in dataclasses.fields(schema)]
    if not isinstance(node, DictConfig):
        raise UsageError(key, node, f"expected a group with the keys {', '.join(fields)}")
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), node))
    except ConfigKeyError as problem:
        name = str(problem.key)
        raise UsageError(f"{key}.{name}", node.get(name), _known(name, fields)) from None
    except (ValidationError, ConfigTypeError) as problem:
        name = str(problem.full_key or "").removeprefix(f"{key}.")
        types = {f.name: getattr(f.type, "__name__", str(f.type)) for f in dataclasses.fields(schema)}
        value = node.get(name) if name in node else None
        raise UsageError(f"{key}.{name}", value, f"expected {types.get(name, 'another type')}") from None
    except OmegaConfBaseException as problem:
        missing = str(getattr(problem, "key", "") or "")
        raise UsageError(f"{key}.{missing}".rstrip("."), "???", "this value must be given") from None


def _known(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"no such key; keys are {', '.join(known)}" + (f"; did you mean {near[0]}?" if near else "")


def _plain(cfg: DictConfig, key: str) -> Any:
    node = OmegaConf.select(cfg, key)
    value = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    if key == "policy":
        _check(isinstance(value, dict), key, value, "choose a policy, such as policy=full")
    elif not isinstance(value, list):
        value = [] if value is None else [value]
    return value


def _whole(cfg: DictConfig, key: str, least: int) -> int:
    value = OmegaConf.select(cfg, key)
    good = isinstance(value, int) and not isinstance(value, bool) and value >= least
    _check(good, key, value, f"expected a whole number >= {least}")
    return int(value)


def _flag(cfg: DictConfig, key: str) -> bool:
    value = OmegaConf.select(cfg, key)
    _check(isinstance(value, bool), key, value, "expected true or false")
    return bool(value)


def _choice(cfg: DictConfig, key: str, allowed: tuple[str, ...]) -> str:
    value = OmegaConf.select(cfg, key)
    text = "none" if value is None else str(value)
    _check(text in allowed, key, text, f"expected one of {', '.join(allowed)}")
    return text


def _budget(value: Any, device: dict[str, Any]) -> int:
    text = str(value).strip()
    if text.endswith("%"):
        share, memory = text[:-1].strip(), int(device.get("memory_bytes") or 0)
        good = share.replace(".", "", 1).isdigit() and 0 < float(share) <= 100 and memory > 0
        _check(good, "budget", value, "expected a percentage of the device's memory in (0, 100]")
        return int(memory * float(share) / 100)
    budget = parse_bytes(value, "budget")
    _check(budget > 0, "budget", value, "expected more than 0 bytes")
    return budget


def _parameter_bytes(config: CellConfig) -> int:
    return parameter_count(config.model) * (2 if config.precision == "bf16-true" else 4)


def _folder_name(name: str) -> str:
    good = bool(name) and all(c.isalnum() or c in "-_." for c in name) and name.strip(".") != ""
    _check(good, "sweep.name", name, "expected letters, digits, '-', '_' and '.': it names a folder")
    return name


def check_writable(key: str, path: Path) -> None:
    """Make the folder ``path`` where it is missing; UsageError naming ``key`` if it cannot be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as problem:
        raise UsageError(key, path, f"expected a folder that can be written: {problem.strerror}") from None


def _check(condition: bool, key: str, value: Any, allowed: str) -> None:
    if not condition:
        raise UsageError(key, value, allowed)

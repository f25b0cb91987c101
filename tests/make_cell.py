"""Small cells and sessions, so that a test states only what it is about."""

import dataclasses
from pathlib import Path
from typing import Any

import yaml

from suite.cell import Cell
from suite.config.schema import (
    CellConfig,
    DataConfig,
    HardwareConfig,
    LimitsConfig,
    ModelConfig,
    OptimizerConfig,
    PathsConfig,
    PolicyConfig,
    SessionConfig,
    TrackingConfig,
    TrainerConfig,
)
from suite.policies import parse_policy

CONF = Path(__file__).parent.parent / "conf"


def make_model(name: str = "llama_nano", **changes: Any) -> ModelConfig:
    """A preset of conf/model, changed."""
    preset = yaml.safe_load((CONF / "model" / f"{name}.yaml").read_text())
    return ModelConfig(**{**preset, **changes})


def base_config(model: ModelConfig, **changes: Any) -> CellConfig:
    """A workload without a policy; ``changes`` by name, those of the model as ``model_<field>``.

    What is compiled is so by the fast backend, unless ``changes`` say otherwise.
    """
    shape = {k.removeprefix("model_"): changes.pop(k) for k in list(changes) if k.startswith("model_")}
    if changes.get("compile", "none") != "none":
        changes.setdefault("compile_backend", "aot_eager")
    config = CellConfig(
        model=dataclasses.replace(model, **shape),
        policy=PolicyConfig("none"),
        seq_len=32,
        batch_size=2,
        precision="fp32",
        attention="sdpa",
        compile="none",
        optimizer=OptimizerConfig(),
        data=DataConfig(),
        device="cpu",
        threads=1,
        seed=0,
        compile_backend="",
    )
    return dataclasses.replace(config, **changes)


def make_cell(model: str = "llama_nano", policy: dict[str, Any] | None = None, **changes: Any) -> Cell:
    """A cell of a preset under a checked policy; ``changes`` as in :func:`base_config`."""
    changes.setdefault("policy", parse_policy(policy or {"family": "none"}))
    return Cell(base_config(make_model(model), **changes))


def make_session(**changes: Any) -> SessionConfig:
    """A session that measures everything once and mirrors nothing."""
    session = SessionConfig(
        name="test",
        passes=("memory", "flops", "parity", "time"),
        rounds=1,
        trainer=TrainerConfig(warmup_min_steps=1, warmup_max_steps=4, steps=3),
        limits=LimitsConfig(),
        tracking=TrackingConfig(kind="none"),
        paths=PathsConfig(),
        hardware=HardwareConfig(name="cpu"),
        device_ids="all",
        budget_bytes=None,
        reference="none",
        retry=(),
        on_failure="continue",
        max_failures=0,
        adopt=False,
        plan=False,
        mode="measure",
        report=False,
    )
    return dataclasses.replace(session, **changes)


# Every family, with options that select something in any model with at least two blocks.
POLICIES: list[dict[str, Any]] = [
    {"family": "none"},
    {"family": "full"},
    {"family": "full", "early_stop": False},
    {"family": "full", "use_reentrant": True},
    {"family": "segments", "n": "sqrt"},
    {"family": "segments", "n": 3},
    {"family": "blocks", "every_n": 2},
    {"family": "blocks", "fraction": 0.5, "skip_last": True},
    {"family": "blocks", "select": "first-1,range-2-4"},
    {"family": "modules", "targets": ["attn"]},
    {"family": "modules", "targets": ["mlp"]},
    {"family": "modules", "targets": ["core_attn"]},
    {"family": "modules", "targets": ["norms"]},
    {"family": "modules", "targets": ["mlp", "norms"]},
    {"family": "modules", "targets": ["attn", "mlp"]},
    {"family": "discard", "targets": "all"},
    {"family": "discard", "targets": ["norm"]},
    {"family": "discard", "targets": ["act"]},
    {"family": "discard", "targets": ["core_attn"]},
    {"family": "rebuild", "targets": "all"},
    {"family": "rebuild", "targets": ["norm", "act"]},
    {"family": "rebuild", "targets": ["norm", "qkv", "act"]},
    {"family": "rebuild", "targets": ["core_attn"]},
    {"family": "rebuild", "targets": ["up", "act"]},
    {"family": "ops", "save": "attn"},
    {"family": "ops", "save": "mm"},
    {"family": "ops", "save": "mm+attn"},
    {"family": "ops", "save": "every_second_mm"},
    {"family": "ops", "save": "mm-down"},
    {"family": "ops", "save": "mm+attn-down"},
    {"family": "named", "qkv": "save"},
    {"family": "named", "core": "save"},
    {"family": "named", "preset": "save_dot_with_context_except_mlp"},
    {"family": "named", "preset": "minimal", "down": "recompute"},
    {"family": "named", "preset": "minimal_offloaded", "core": "save"},
    {"family": "named", "core": "offload"},
    {"family": "tiled", "mlp": 3, "loss": 1},
    {"family": "tiled", "mlp": 1, "loss": 4},
    {"family": "tiled", "mlp": 2, "loss": 2, "linear_cross_entropy": True},
    {"family": "assignment", "blocks": {"every-1": "full"}, "loss": 4},
    {"family": "assignment", "blocks": {"0": "none", "1-2": "discard.all", "last-1": "full"}},
    {"family": "assignment", "blocks": {"first-2": "segments.2", "3": "ops.mm+attn-down"}},
    {"family": "offload", "what": "block_inputs", "min_bytes": 0},
    {"family": "offload", "what": "saved", "min_bytes": 256},
    {"family": "offload", "what": "saved", "min_bytes": 0, "keep_last": 0},
    {"family": "offload", "what": "selective", "min_bytes": 0, "keep_last": 2},
    {"family": "offload", "what": "selective", "ops": "attn", "min_bytes": 0},
    {"family": "offload", "what": "module_inputs", "min_bytes": 0},
    {"family": "compressed", "what": "inputs", "min_bytes": 0},
    {"family": "compressed", "what": "inputs", "dtype": "e5m2", "scale": "tensor", "min_bytes": 0},
    {"family": "compressed", "what": "saved", "min_bytes": 0},
    {"family": "compressed", "what": "saved", "dtype": "e5m2", "scale": "tensor", "min_bytes": 500},
    {"family": "ops", "save": ["aten.mm", "aten.add"]},
]


def policy_id(policy: dict[str, Any]) -> str:
    """A readable test id."""
    return make_cell(policy=policy).policy_label

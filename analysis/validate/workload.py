"""Requests: a published configuration as the suite writes a cell."""

import dataclasses
import json
from typing import Any

import yaml

from analysis.policies.workload import CONF
from analysis.validate.case import Request
from suite.cell import Cell, policy_label
from suite.config.schema import (
    CellConfig,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
)
from suite.policies import parse_policy

# Policies of the published rows, as configuration nodes.
NONE: dict[str, Any] = {"family": "none"}
FULL: dict[str, Any] = {"family": "full"}
EVERY_SECOND_MM: dict[str, Any] = {"family": "ops", "save": "every_second_mm"}
CORE_ATTENTION: dict[str, Any] = {"family": "modules", "targets": ["core_attn"]}


def every_nth(n: int) -> dict[str, Any]:
    """Every n-th block recomputed whole; 1 is every block."""
    return FULL if n == 1 else {"family": "blocks", "every_n": n}


def preset(preset_name: str, /, **changes: Any) -> ModelConfig:
    """The model of ``conf/model/PRESET_NAME.yaml`` with some fields changed."""
    node = yaml.safe_load((CONF / "model" / f"{preset_name}.yaml").read_text(encoding="utf-8"))
    return dataclasses.replace(ModelConfig(**node), **changes)


def memory_of(hardware: str) -> int:
    """Bytes of the card of ``conf/hardware/HARDWARE.yaml``."""
    node = yaml.safe_load((CONF / "hardware" / f"{hardware}.yaml").read_text(encoding="utf-8"))
    return int(node["memory_bytes"])


def request(
    model: ModelConfig,
    policy: dict[str, Any],
    hardware: str,
    *,
    seq_len: int,
    batch_size: int,
    precision: str = "bf16-true",
    attention: str = "flash",
    compiled: bool = False,
    optimizer: str = "fused",
    parallel: ParallelConfig | None = None,
) -> Request:
    """One question to a predictor, all of it plain JSON. Raises UsageError on what the suite has not.

    ``optimizer`` is the implementation of AdamW: fused, foreach or forloop.
    """
    config = CellConfig(
        model=model,
        policy=parse_policy(policy),
        seq_len=seq_len,
        batch_size=batch_size,
        precision=precision,
        attention=attention,
        compile="block" if compiled else "none",
        optimizer=OptimizerConfig(impl=optimizer),
        data=DataConfig(),
        device="cuda",
        threads=0,
        seed=0,
        compile_backend="inductor" if compiled else "",
        parallel=parallel or ParallelConfig(),
    )
    resolved = json.loads(json.dumps(Cell(config).resolved))
    return {"config": resolved, "hardware": hardware, "assumptions": {}}


def at_depth(asked: Request, n_layers: int) -> Request:
    """The same question of a model of ``n_layers`` blocks: two depths tell what one block costs."""
    config = asked["config"]
    return asked | {"config": config | {"model": config["model"] | {"n_layers": n_layers}}}


def label_of(asked: Request) -> str:
    """The policy of a request as the suite names it: ``blocks(every_n=2)``."""
    return policy_label(asked["config"]["policy"])


def fsdp(dp: int, *, zero: int = 3, **more: Any) -> ParallelConfig:
    """Fully sharded data parallel with parameters, gradients and states in fp32 and compute in bf16.

    The suite's nearest recipe is Megatron-LM's: its blocks compute in bf16 as FSDP's do, and the states it
    shares out take 18 bytes for each parameter where FSDP's take 16.
    """
    return ParallelConfig(dp=dp, zero=zero, recipe="megatron", **more)


FSDP_CAVEAT = "FSDP's fp32 parameters as the megatron recipe: 18 sharded bytes a parameter, not 16"

"""A cell: one workload under one policy on one device, identified by what it is."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from suite.config.schema import (
    CellConfig,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    PolicyConfig,
)

# Text for people; changing it must not make a measured cell a different one.
_DESCRIPTIVE = {"model": ("source",)}


def canonical(config: dict[str, Any]) -> str:
    """The one JSON text of a configuration: sorted keys, no spaces."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(config: dict[str, Any]) -> str:
    """16 hexadecimal digits of the configuration's SHA-256."""
    return hashlib.sha256(canonical(config).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Cell:
    """A resolved configuration and the names by which people and files know it."""

    config: CellConfig

    @cached_property
    def resolved(self) -> dict[str, Any]:
        """The configuration as plain JSON types, as stored in every record."""
        resolved = dataclasses.asdict(self.config)
        # So that cells of one device are what they were before there was a choice.
        if self.config.parallel == ParallelConfig():
            del resolved["parallel"]
        return resolved

    def _identity(self) -> dict[str, Any]:
        identity: dict[str, Any] = json.loads(canonical(self.resolved))
        for group, names in _DESCRIPTIVE.items():
            for name in names:
                del identity[group][name]
        # So that cells which compile nothing are the same as before there was a choice of backends.
        if not identity["compile_backend"]:
            del identity["compile_backend"]
        return identity

    @cached_property
    def id(self) -> str:
        """Content address of the cell."""
        return digest(self._identity())

    @cached_property
    def workload_id(self) -> str:
        """Content address of everything but the policy: cells that share it form a block of rounds."""
        identity = self._identity()
        del identity["policy"]
        return digest(identity)

    @property
    def policy_label(self) -> str:
        """``segments(n=sqrt)``: the family and the options that were set."""
        return policy_label(self.resolved["policy"])

    @property
    def workload_label(self) -> str:
        """``llama_mini s=1024 b=2 fp32 sdpa adamw-foreach cpu``."""
        return workload_label(self.resolved)


def config_of(resolved: dict[str, Any]) -> CellConfig:
    """The typed configuration from a record's ``config``; the inverse of :attr:`Cell.resolved`."""
    groups: dict[str, type[Any]] = {
        "model": ModelConfig,
        "policy": PolicyConfig,
        "optimizer": OptimizerConfig,
        "data": DataConfig,
    }
    if "parallel" in resolved:
        groups["parallel"] = ParallelConfig
    typed = {name: group(**resolved[name]) for name, group in groups.items()}
    return CellConfig(**{**resolved, **typed})


def policy_label(policy: dict[str, Any]) -> str:
    """The short name of a policy; options appear in the family's own order."""
    options = policy["options"]
    if not options:
        return str(policy["family"])
    return f"{policy['family']}({', '.join(f'{k}={_plain(v)}' for k, v in options.items())})"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict) and value.keys() == {"family", "options"}:
        return policy_label(value)
    if isinstance(value, dict):
        return ", ".join(f"{k}: {_plain(v)}" for k, v in value.items())
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def workload_label(resolved: dict[str, Any]) -> str:
    """The short name of a workload from a cell's resolved configuration."""
    optimizer, data = resolved["optimizer"], resolved["data"]
    parts = [
        resolved["model"]["name"],
        f"s={resolved['seq_len']}",
        f"b={resolved['batch_size']}",
        resolved["precision"],
        resolved["attention"],
        f"{optimizer['kind']}-{optimizer['impl']}",
    ]
    if data["kind"] != "synthetic":
        parts.append(data["kind"])
    if resolved["compile"] != "none":
        backend = resolved["compile_backend"]
        parts.append(f"compile={resolved['compile']}" + (f"/{backend}" if backend != "inductor" else ""))
    return " ".join([*parts, *_spread(resolved.get("parallel", {})), resolved["device"]])


def _spread(parallel: dict[str, Any]) -> list[str]:
    """``tp=8 sp``: what is not as on one device."""
    alone = dataclasses.asdict(ParallelConfig())
    changed = {name: value for name, value in parallel.items() if value != alone[name]}
    return [name if value is True else f"{name}={value}" for name, value in changed.items()]

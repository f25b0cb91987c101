"""Hydra's compose for many jobs that differ in a few values: what they have in common is composed once.

Hydra reads and merges every file anew for each job, a tenth of a second each. Here the choices of files
(``policy=full``) are composed by Hydra, once for all jobs that share them; the values (``seq_len=512``) are
then set in a copy, as Hydra itself sets them last.
"""

import copy
from functools import cache, lru_cache
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

_CONFIG = "config"


def compose(overrides: list[str]) -> DictConfig:
    """What ``hydra.compose`` makes of ``overrides``; the caller may change it.

    Raises what Hydra raises, which is left to Hydra to say.
    """
    program = GlobalHydra.instance().hydra
    choices: list[str] = []
    values: list[tuple[str, Any]] = []
    for text in overrides:
        override = _parsed(text)
        if _is_choice(override, program):
            choices.append(text)
        elif _is_value(override):
            values.append((override.key_or_group, override.value()))
        else:  # what adds or deletes a key works in the order of the overrides
            return hydra.compose(_CONFIG, overrides=overrides)
    composed = copy.deepcopy(_composed(program, tuple(choices)))
    try:
        for key, value in values:
            OmegaConf.update(composed, key, value, merge=True)
    except OmegaConfBaseException:
        return hydra.compose(_CONFIG, overrides=overrides)
    return composed


@cache
def _parsed(override: str) -> Override:
    return OverridesParser.create().parse_override(override)


def _is_choice(override: Override, program: Any) -> bool:
    """Whether it chooses a file, or sets what Hydra keeps to itself and leaves out of what it composes."""
    key = override.key_or_group
    return key.split(".")[0] == "hydra" or "/" in key or _is_group(program, key)


def _is_value(override: Override) -> bool:
    plain = override.type == OverrideType.CHANGE and override.package is None
    return plain and not override.is_sweep_override() and not isinstance(override.value(), dict | list)


# A program has one Hydra; tests have one after the other, with files of their own.
@lru_cache(maxsize=256)
def _composed(program: Any, choices: tuple[str, ...]) -> DictConfig:  # noqa: ARG001
    return hydra.compose(_CONFIG, overrides=list(choices))


@lru_cache(maxsize=256)
def _is_group(program: Any, key: str) -> bool:
    return bool(program.config_loader.get_group_options(key))

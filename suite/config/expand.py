"""From a sweep's axes, a scale and the user's overrides to the composed configuration of every cell.

The order of precedence, weakest first: ``conf/config.yaml``, the scale's ``overrides`` (where the
sweep is ``scaled``), the sweep's ``base``, an axis of the sweep, the user. A user who sets the key of
an axis replaces that axis.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from suite.errors import UsageError
from suite.units import parse_bytes

Compose = Callable[[list[str]], DictConfig]

# Keys that say how or where a run goes: they never make a cell another one.
_SESSION_KEYS = frozenset(
    {"sweep", "passes", "rounds", "budget", "reference", "retry", "on_failure", "max_failures", "adopt"}
    | {"plan", "report", "limits", "paths", "tracking", "trainer", "hardware", "mode", "hydra"}
    | {"assumptions"}
)


def override_key(override: str) -> str:
    """``model`` from ``+model=x``; ``policy.n`` from ``policy.n=2``."""
    return str(OverridesParser.create().parse_override(override).key_or_group)


def weaker(overrides: Iterable[str], stronger: Sequence[str]) -> list[str]:
    """Those of ``overrides`` whose key no stronger override sets."""
    taken = {override_key(o) for o in stronger}
    return [o for o in overrides if override_key(o) not in taken]


def cell_overrides(user: Sequence[str]) -> list[str]:
    """The user's overrides that change what is measured, sorted."""
    return sorted(o for o in user if override_key(o).split(".")[0] not in _SESSION_KEYS)


def session_overrides(cfg: DictConfig, user: Sequence[str]) -> list[str]:
    """Overrides of the whole session: the scale's, then the sweep's base, then the user's."""
    lower: list[str] = []
    if _is_sweep(cfg):
        base = [str(o) for o in cfg.sweep.base]
        scale = map(str, cfg.scale.overrides) if cfg.sweep.scaled else ()
        lower = weaker(scale, base) + base
    return [*weaker(lower, user), *user]


def expand(cfg: DictConfig, user: Sequence[str], compose: Compose) -> Iterator[DictConfig]:
    """The composed configuration of each cell of ``cfg``; of one cell where there is no sweep.

    Args:
        cfg: composed with the user's overrides and the chosen scale.
        user: the user's overrides, ``scale=...`` resolved.
        compose: Hydra's compose, from overrides.
    """
    base = session_overrides(cfg, user)
    if not _is_sweep(cfg):
        yield compose(base)
        return
    pinned = {override_key(o) for o in user}
    products: Any = OmegaConf.to_container(cfg.sweep.products, resolve=True)
    for product in products:
        _check_product(product)
        axes = {axis: values for axis, values in product.items() if axis not in pinned}
        choices = [_choices(axis, values) for axis, values in axes.items()]
        for chosen in itertools.product(*choices):
            point = [override for bundle in chosen for override in bundle]
            yield compose([*weaker(base, point), *point])


def choose_scale(scales: Iterable[DictConfig], device_type: str, memory_bytes: int) -> str:
    """Name of the scale for a device: the one of its kind with the largest ``min_memory`` it has."""
    kind = "cpu" if device_type == "cpu" else "accelerator"
    fitting = [
        (parse_bytes(scale.min_memory, f"scale.{scale.name}.min_memory"), str(scale.name))
        for scale in scales
        if scale.device == kind
    ]
    return max((least, name) for least, name in fitting if least <= memory_bytes or least == 0)[1]


def _is_sweep(cfg: DictConfig) -> bool:
    return bool(OmegaConf.select(cfg, "sweep.products"))


def _check_product(product: Any) -> None:
    good = isinstance(product, dict) and all(isinstance(v, list) and v for v in product.values())
    if not good:
        raise UsageError("sweep.products", product, "expected mappings of an axis to a list of values")


def _choices(axis: str, values: list[Any]) -> list[list[str]]:
    """The overrides of each value; ``passes`` is no axis but says which passes the product's cells get."""
    if axis == "passes":
        return [[f"passes=[{','.join(map(str, values))}]"]]
    return [_bundle(axis, value) for value in values]


def _bundle(axis: str, value: Any) -> list[str]:
    """``policy: segments policy.n=2`` is two overrides; any other value is one."""
    first, *rest = str(value).split()
    return [f"{axis}={first}", *rest]

"""Refuses keys that nothing reads: a word that is mistyped must not quietly become a default."""

import difflib
from collections.abc import Collection, Sequence

from omegaconf import DictConfig, ListConfig, OmegaConf

from suite.config.expand import override_key
from suite.errors import UsageError


def check_known(cfg: DictConfig, plain: DictConfig, user: Sequence[str]) -> None:
    """Raise UsageError on a key of the top level or of the sweep that does not exist.

    Args:
        cfg: composed by Hydra.
        plain: the same without any override: every key there is.
        user: the user's overrides.
    """
    _refuse_unknown("", cfg, _names(plain))
    chosen = any(override_key(o) == "sweep" for o in user)
    _check_sweep(OmegaConf.select(cfg, "sweep"), plain.sweep, chosen)


def _check_sweep(sweep: object, plain: DictConfig, chosen: bool) -> None:
    if not isinstance(sweep, DictConfig):
        raise UsageError("sweep", sweep, f"expected a file with the keys {', '.join(map(str, plain))}")
    # A key of a sweep's own is a name for what its products refer to.
    text = str(OmegaConf.to_container(sweep, resolve=False))
    own = {name for name in _names(sweep) if f"${{sweep.{name}}}" in text}
    _refuse_unknown("sweep.", sweep, _names(plain) | own)
    for key in ("base", "products"):
        value = OmegaConf.select(sweep, key)
        if not isinstance(value, ListConfig):
            raise UsageError(f"sweep.{key}", value, "expected a list")
    if chosen and not sweep.products:
        raise UsageError(
            "sweep.products", "[]", "this sweep has none; expected mappings of an axis to a list of values"
        )


def _names(node: DictConfig) -> set[str]:
    return {str(key) for key in node}


def _refuse_unknown(prefix: str, node: DictConfig, known: Collection[str]) -> None:
    for name in sorted(_names(node) - set(known)):
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {prefix}{near[0]}?" if near else ""
        value = OmegaConf.to_container(node, resolve=False)[name]  # type: ignore[call-overload,index]
        keys = ", ".join(sorted(known))
        raise UsageError(f"{prefix}{name}", value, f"no such key; keys are {keys}{hint}")

"""The policies that are compared, and how one is written on the command line."""

import re
from collections.abc import Sequence
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from analysis.policies.workload import CONF
from suite.config.schema import PolicyConfig
from suite.errors import UsageError
from suite.policies import FAMILIES, parse_policy

_ALLOWED = "expected full, discard.all, segments(n=sqrt) or 'blocks policy.every_n=2'"
_LABEL = re.compile(r"(\w+)(?:\.([^\s()]+)|\((.*)\))?", re.DOTALL)
# One of each kind: what keeps everything, what keeps the least, and what is between them.
DEFAULTS: tuple[dict[str, Any], ...] = (
    {"family": "none"},
    {"family": "full"},
    {"family": "segments", "n": "sqrt"},
    {"family": "blocks", "every_n": 2},
    {"family": "modules", "targets": "attn"},
    {"family": "modules", "targets": "mlp"},
    {"family": "discard", "targets": "all"},
    {"family": "rebuild", "targets": "norm+act"},
    {"family": "ops", "save": "attn"},
    {"family": "ops", "save": "mm+attn"},
    {"family": "ops", "save": "every_second_mm"},
    {"family": "named", "preset": "save_qkv_proj"},
    {"family": "offload", "what": "block_inputs"},
    {"family": "tiled", "mlp": 1, "loss": 8},
    {"family": "assignment", "blocks": {"every-1": "full"}, "loss": 8},
)


def policies_of(labels: Sequence[str]) -> list[PolicyConfig]:
    """The named policies, or the default ones; each once, in order. Raises UsageError."""
    nodes = [_node(label) for label in labels] if labels else list(DEFAULTS)
    found: list[PolicyConfig] = []
    for node in nodes:
        policy = parse_policy(node)
        if policy not in found:
            found.append(policy)
    return found


def _node(label: str) -> dict[str, Any]:
    """A label as reports write it, ``family.value``, or as an axis of a sweep writes it."""
    text = label.strip()
    name, _, rest = text.partition(" ")
    match = _LABEL.fullmatch(text)
    if rest and name in FAMILIES:
        return {"family": name, **_options(rest.split(), label)}
    if match is None:
        raise UsageError("--policy", label, _ALLOWED)
    family, value, options = match.groups()
    if family not in FAMILIES:
        raise UsageError("--policy", label, f"expected one of {', '.join(FAMILIES)}")
    if options is not None:
        return {"family": family, **_options(re.split(r",\s+", options), label)}
    if value is None:
        # With the options that policy=FAMILY has for the suite.
        node: dict[str, Any] = yaml.safe_load(
            (CONF / "policy" / f"{family}.yaml").read_text(encoding="utf-8")
        )
        return node
    shorthand = FAMILIES[family].shorthand
    if not shorthand:
        raise UsageError("--policy", label, f"{family} has no main option: write {family} alone")
    return {"family": family, **_options([f"{shorthand}={value}"], label)}


def _options(assignments: Sequence[str], label: str) -> dict[str, Any]:
    """``policy.n=2`` or ``n=2``, with values in Hydra's grammar as everywhere else."""
    texts = [text for text in assignments if text]
    try:
        parsed = OverridesParser.create().parse_overrides(texts)
    except HydraException:
        raise UsageError("--policy", label, _ALLOWED) from None
    if any(override.is_sweep_override() for override in parsed):
        raise UsageError("--policy", label, "several values for one option: repeat --policy instead")
    return {o.key_or_group.removeprefix("policy."): _plain(o.value()) for o in parsed}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(_plain(k)): _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    # A quoted string of Hydra's grammar.
    return getattr(value, "text", value)

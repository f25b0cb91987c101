"""Each family in the options that show what it can do: what tables of all policies list."""

from typing import Any

from suite.policies import FAMILIES
from suite.policies.compressed import WHAT as COMPRESSED
from suite.policies.named import PRESETS as NAMES
from suite.policies.offload import WHAT as OFFLOADED
from suite.policies.ops import PRESETS as OPERATORS

# Family to options. A family that is not here is listed with its defaults.
_OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "full": ({}, {"early_stop": False}),
    "segments": ({"n": 2}, {"n": "sqrt"}),
    "blocks": ({"every_n": 2}, {"fraction": 0.25}, {"select": "first-1"}),
    "modules": tuple(
        {"targets": t}
        for t in ("attn", "mlp", "attn+mlp", "core_attn", "norms", "experts", "shared_experts", "router")
    ),
    "discard": tuple({"targets": t} for t in ("act", "norm", "core_attn", "norm+act", "all")),
    "rebuild": tuple({"targets": t} for t in ("norm+act", "norm+qkv+act", "core_attn", "up+act", "all")),
    "ops": tuple({"save": preset} for preset in OPERATORS),
    "named": (*({"preset": preset} for preset in NAMES), {"up": "save"}, {"core": "save"}),
    "offload": tuple({"what": what} for what in OFFLOADED),
    "compressed": tuple({"what": what} for what in COMPRESSED),
    "budget": ({"fraction": 0.5},),
    "tiled": ({}, {"mlp": 1}, {"loss": 1}, {"linear_cross_entropy": True}),
    "assignment": ({"blocks": {"every-2": "discard.all"}, "loss": 8},),
}


def representatives() -> list[dict[str, Any]]:
    """Configuration nodes of policies, family by family in the order of the registry."""
    return [{"family": family, **options} for family in FAMILIES for options in _OPTIONS.get(family, ({},))]

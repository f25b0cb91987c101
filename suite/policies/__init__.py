"""What is kept and what is recomputed: one class per family, one verb ``apply``.

:data:`FAMILIES` is named as the files of ``conf/policy/``. To add a family, write one module with one
:class:`~suite.policies.base.Policy` and enter it here. The modules import torch only inside
``apply``, so that the parent process can parse and check every policy before a child exists.
"""

import dataclasses
import difflib
from typing import Any

from suite.config.schema import PolicyConfig
from suite.errors import UsageError
from suite.policies.assignment import Assignment
from suite.policies.base import Applied, Policy, Region, Tolerance
from suite.policies.blocks import Blocks
from suite.policies.budget import Budget
from suite.policies.compressed import Compressed
from suite.policies.discard import Discard
from suite.policies.entries import Entry
from suite.policies.full import Full
from suite.policies.keep_all import KeepAll
from suite.policies.modules import Modules
from suite.policies.named import Named
from suite.policies.offload import Offload
from suite.policies.ops import Ops
from suite.policies.rebuild import Rebuild
from suite.policies.segments import Segments
from suite.policies.tiled import Tiled

FAMILIES: dict[str, type[Policy]] = {
    "none": KeepAll,
    "full": Full,
    "segments": Segments,
    "blocks": Blocks,
    "modules": Modules,
    "discard": Discard,
    "rebuild": Rebuild,
    "ops": Ops,
    "named": Named,
    "offload": Offload,
    "compressed": Compressed,
    "tiled": Tiled,
    "budget": Budget,
    "assignment": Assignment,
}

__all__ = ["FAMILIES", "Applied", "Entry", "Policy", "Region", "Tolerance", "make_policy", "parse_policy"]


def parse_policy(node: dict[str, Any]) -> PolicyConfig:
    """A configuration node ``{family: ..., option: ...}`` as a normal form.

    Only options that differ from their default are kept, so that ``policy=full`` and ``policy=full
    policy.early_stop=true`` are the same cell. Raises UsageError on an unknown family or option or on a
    value of the wrong kind.
    """
    options = dict(node)
    name = options.pop("family", None)
    if name not in FAMILIES:
        raise UsageError("policy", name, f"expected one of {', '.join(FAMILIES)}")
    config_type = FAMILIES[name].Config
    fields = {f.name: f for f in dataclasses.fields(config_type)}
    for key in options:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, 1)
            hint = f"; did you mean policy.{near[0]}?" if near else ""
            known = ", ".join(fields) or "none"
            raise UsageError(f"policy.{key}", options[key], f"options of {name} are: {known}{hint}")
    config = config_type(**options)
    config.check()
    changed = {n: getattr(config, n) for n, f in fields.items() if getattr(config, n) != f.default}
    return PolicyConfig(family=name, options=changed)


def make_policy(config: PolicyConfig) -> Policy:
    """The policy that a normal form describes."""
    family = FAMILIES[config.family]
    return family(family.Config(**config.options))

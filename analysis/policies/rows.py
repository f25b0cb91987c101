"""Every policy on one workload: bytes, work and formulas, or why the policy cannot apply."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.statistics import pareto_front
from suite.cell import Cell
from suite.config.schema import CellConfig, PolicyConfig
from suite.errors import Unsupported
from suite.models.check import check_kernel
from suite.policies import FAMILIES, make_policy, parse_policy
from suite.predict.estimate import saved_outside_blocks
from suite.predict.flops import block_flops, model_flops
from suite.predict.policies import trunk_of
from suite.predict.policies.formulas import formula_of
from suite.predict.policies.representatives import representatives
from suite.predict.tensors import Sizes


@dataclass(frozen=True)
class Row:
    """One policy. Where ``reason`` says why it cannot apply, figures are None.

    Attributes:
        name: ``discard.all``, as an assignment writes it, where one option says it all; else the label.
        label: as reports and records name the policy.
        saved_units: bytes saved per block over those of a block's input.
        saved_bytes: of all blocks and of what lies outside them.
        replay_ratio: FLOPs that run again over those of the blocks' forwards.
        step_ratio: the same over all that the step needs.
        exact: the figures cover every tensor and every product; a formula may still leave out small terms.
        rounded: what is kept is rounded, so that gradients differ by more than the order of sums.
        on_front: no other policy needs both less memory (saved and rebuilt) and less work, among those that
            are exact, round nothing and keep nothing on the host, whose transfers are no FLOPs.
    """

    family: str
    name: str
    label: str
    options: dict[str, Any]
    own: bool = False
    reason: str = ""
    saved_per_block_bytes: float | None = None
    saved_units: float | None = None
    saved_bytes: int | None = None
    transient_bytes: int | None = None
    host_bytes: int | None = None
    replayed_flops: int | None = None
    replay_ratio: float | None = None
    step_ratio: float | None = None
    saved_formula: str = ""
    work_formula: str = ""
    exact: bool = True
    rounded: bool = False
    on_front: bool = False


def rows_of(cell: Cell, *, own: bool = False) -> list[Row]:
    """The representative policies of every family on the workload of ``cell``, and its own if asked for."""
    policies = [parse_policy(node) for node in representatives()]
    if own and cell.config.policy not in policies:
        policies.append(cell.config.policy)
    rows = [_row(dataclasses.replace(cell.config, policy=policy)) for policy in policies]
    if own:
        at = policies.index(cell.config.policy)
        rows[at] = dataclasses.replace(rows[at], own=True)
    return _with_front(rows)


def policy_name(policy: PolicyConfig, label: str) -> str:
    """``family.value`` where the family's main option is the only one that is not at its default."""
    option = FAMILIES[policy.family].shorthand
    value = getattr(make_policy(policy).config, option, None) if option else None
    if policy.options.keys() - {option} or not isinstance(value, str | int | tuple) or value == "":
        return label
    return f"{policy.family}.{'+'.join(map(str, value)) if isinstance(value, tuple) else value}"


def _row(config: CellConfig) -> Row:
    cell, policy = Cell(config), config.policy
    name = policy_name(policy, cell.policy_label)
    row = Row(policy.family, name, cell.policy_label, policy.options)
    reason = _refusal(config)
    if reason:
        return dataclasses.replace(row, reason=reason)
    trunk, formula, depth = trunk_of(config), formula_of(config), config.model.n_layers
    per_block = trunk.saved_bytes / depth
    tolerance = make_policy(policy).tolerance(config)
    return dataclasses.replace(
        row,
        saved_per_block_bytes=per_block,
        saved_units=per_block / Sizes.of(config).u,
        saved_bytes=trunk.saved_bytes + saved_outside_blocks(config),
        transient_bytes=trunk.transient_bytes,
        host_bytes=trunk.host_bytes,
        replayed_flops=trunk.recomputed_flops,
        replay_ratio=trunk.recomputed_flops / (depth * block_flops(config).total),
        step_ratio=trunk.recomputed_flops / model_flops(config),
        saved_formula=formula.saved if formula.exact else f"≈ {formula.saved}",
        work_formula=formula.work,
        rounded=tolerance is not None and tolerance.exact_forward,
        # Under mixed precision the sizes of activations are an approximation: see element_bytes.
        exact=trunk.exact and config.precision != "bf16-mixed",
    )


def _refusal(config: CellConfig) -> str:
    """Why the policy cannot apply; whether this machine has a compiler is not the question here."""
    policy = make_policy(config.policy)
    try:
        check_kernel(config)
        policy.check(config)
        policy.check_compile(config)
    except Unsupported as problem:
        return str(problem)
    return ""


def _with_front(rows: Sequence[Row]) -> list[Row]:
    known = [
        (i, row)
        for i, row in enumerate(rows)
        if not (row.reason or row.rounded or row.host_bytes) and row.exact
    ]
    costs = [
        (float((row.saved_bytes or 0) + (row.transient_bytes or 0)), float(row.replayed_flops or 0))
        for _, row in known
    ]
    best = {known[found][0] for found in pareto_front(costs)}
    return [dataclasses.replace(row, on_front=i in best) for i, row in enumerate(rows)]

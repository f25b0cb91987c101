"""``assignment``: each block under a policy of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from suite.config.schema import CellConfig, PolicyConfig
from suite.errors import UsageError
from suite.policies.base import Applied, Policy, Tolerance
from suite.policies.selectors import check_selector, select_blocks
from suite.policies.tiled import Tiled

if TYPE_CHECKING:
    from suite.models.decoder import Decoder

_KEY = "policy.blocks"


class Assignment(Policy):
    """A mixture, as the planner and the search emit it: ``{0-7: none, 8-30: discard.all, 31: full}``.

    Selectors are those of :mod:`suite.policies.selectors` and must not overlap. A block that none of them
    names keeps everything.
    """

    family = "assignment"
    shorthand = "blocks"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """A policy for each block, and what the head does.

        Attributes:
            blocks: selector to policy. A policy is written as its family, as ``family.value`` where the
                family has one main option, or as a mapping with ``family`` and its options.
            loss: chunks of head and loss, as under ``tiled``.
        """

        blocks: Any = field(default_factory=dict)
        loss: int = 1

        def __post_init__(self) -> None:
            if isinstance(self.blocks, Mapping):
                parsed = {str(selector): _policy_node(node) for selector, node in self.blocks.items()}
                object.__setattr__(self, "blocks", parsed)

        def check(self) -> None:
            """A mapping of at least one selector, none of whose policies is an assignment again."""
            if not isinstance(self.blocks, dict) or not self.blocks:
                raise UsageError(_KEY, self.blocks, "expected selectors and policies: {0-7: none, 8: full}")
            for selector, policy in self.blocks.items():
                check_selector(selector, _KEY)
                if policy["family"] == "tiled" and policy["options"].get("loss", Tiled.Config.loss) > 1:
                    instead = "write {family:tiled,mlp:4,loss:1} here, and policy.loss=8"
                    allowed = f"the loss is the model's, not a block's: {instead}"
                    raise UsageError(f"{_KEY}.{selector}", "tiled", allowed)
            if not isinstance(self.loss, int) or isinstance(self.loss, bool) or self.loss < 1:
                raise UsageError("policy.loss", self.loss, "expected a whole number of chunks >= 1")

    def parts(self, depth: int) -> list[tuple[PolicyConfig, list[int]]]:
        """Each policy and the indices of its blocks.

        Raises MatchedNothing for a selector beyond the depth, UsageError where two name the same block.
        """
        taken: dict[int, str] = {}
        parts = []
        for selector, node in self.config.blocks.items():
            indices = select_blocks(selector, depth, _KEY)
            for index in indices:
                if index in taken:
                    first = taken[index]
                    raise UsageError(_KEY, selector, f"block {index} is in {first} already: name it once")
                taken[index] = selector
            parts.append((PolicyConfig(**node), indices))
        return parts

    def check(self, cell: CellConfig) -> None:
        """Every part must be able to apply, to a model of as many blocks as it has here."""
        from dataclasses import replace

        from suite.policies import make_policy

        for policy, indices in self.parts(cell.model.n_layers):
            model = replace(cell.model, n_layers=len(indices))
            make_policy(policy).check(replace(cell, model=model, policy=policy))
        if self.config.loss > 1:
            self._tiled_loss().check(cell)

    def tolerance(self, cell: CellConfig) -> Tolerance | None:
        """The widest of its parts; the forward is exact if it is in all of them."""
        from dataclasses import replace

        from suite.policies import make_policy

        parts = [make_policy(policy) for policy, _ in self.parts(cell.model.n_layers)]
        if self.config.loss > 1:
            parts.append(self._tiled_loss())
        stated = [t for t in (part.tolerance(cell) for part in parts) if t is not None]
        if not stated:
            return None
        widest = max(stated, key=lambda t: t.relative)
        return replace(widest, exact_forward=all(t.exact_forward for t in stated))

    def _tiled_loss(self) -> Tiled:
        return Tiled(Tiled.Config(mlp=1, loss=self.config.loss))

    def check_compile(self, cell: CellConfig) -> None:
        """Every part must survive compilation."""
        from suite.policies import make_policy

        for policy, _ in self.parts(cell.model.n_layers):
            make_policy(policy).check_compile(cell)

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Apply each part to its blocks."""
        from suite.policies import make_policy

        applied = Applied()
        for policy, indices in self.parts(len(blocks)):
            part = make_policy(policy).apply(model, [blocks[i] for i in indices])
            applied = applied.joined(part, policy.family)
        if self.config.loss > 1:
            applied = applied.joined(self._tiled_loss().apply(model, ()), "tiled")
        return applied


def _policy_node(node: Any) -> dict[str, Any]:
    """``family``, ``family.value`` or a mapping, as ``{family, options}`` in normal form."""
    from suite.policies import FAMILIES, parse_policy

    named = node.get("family") if isinstance(node, Mapping) else str(node).partition(".")[0]
    if named == Assignment.family:
        raise UsageError(_KEY, named, "an assignment holds no other: name the policy of each block")
    if isinstance(node, Mapping):
        flat = {**node, **node["options"]} if "options" in node else dict(node)
        flat.pop("options", None)
    else:
        family, _, value = str(node).partition(".")
        flat = {"family": family}
        if value:
            option = FAMILIES[family].shorthand if family in FAMILIES else ""
            if family in FAMILIES and not option:
                raise UsageError(_KEY, node, f"{family} has no main option: write {family} alone")
            flat[option] = int(value) if value.isdigit() else value
    policy = parse_policy(flat)
    return {"family": policy.family, "options": policy.options}

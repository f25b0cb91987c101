"""``named``: every block is recomputed but for tensors chosen by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from suite.config.schema import CellConfig
from suite.errors import MatchedNothing, Unsupported, UsageError
from suite.policies.base import Applied, Policy, Region
from suite.policies.entries import Entry, scope_of
from suite.policies.ops import ATTENTION_OPERATORS, MATMUL_OPERATORS

if TYPE_CHECKING:
    from torch import Tensor

    from suite.models.decoder import Decoder
    from suite.policies.host import HostStore

# Name to the submodules of a block whose product it is. gate and up are one product here.
NAMED: dict[str, tuple[str, ...]] = {
    "qkv": ("attn.qkv",),
    "core": ("attn.core",),
    "wo": ("attn.out",),
    "router": ("mlp.router",),
    "up": ("mlp.up", "mlp.gate_up", "mlp.experts.gate_up", "mlp.shared.gate_up"),
    "down": ("mlp.down", "mlp.experts.down", "mlp.shared.down"),
}
# A router's choice is kept whole: scores made again in another order of sums could send tokens elsewhere.
_BESIDE_PRODUCTS = {"router": frozenset({"_softmax", "topk"})}
ACTIONS = ("recompute", "save", "offload")

# MaxText's names of remat policies, with its tensors under the names they have here: query, key, value and
# qkv_proj are qkv; context is core; out_proj is wo; mlpwi, mlpwi_0 and mlpwi_1 are up; mlpwo is down.
PRESETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "save_qkv_proj": ("save", ("qkv",)),
    "save_out_proj": ("save", ("wo",)),
    "save_dot_except_mlp": ("save", ("qkv", "wo")),
    "save_dot_with_context_except_mlp": ("save", ("qkv", "core", "wo")),
    "save_dot_except_mlpwi": ("save", ("qkv", "wo", "down")),
    "minimal": ("save", ("qkv", "wo", "up", "down")),
    "minimal_with_context": ("save", ("qkv", "core", "wo", "up", "down")),
    "qkv_proj_offloaded": ("offload", ("qkv",)),
    "minimal_offloaded": ("offload", ("qkv", "wo", "up", "down")),
}


class Named(Policy):
    """What JAX calls save_only_these_names, with a name for each product of a block."""

    family = "named"
    compiles = False
    shorthand = "preset"

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """An action for each name; ``preset`` is what the names not given are taken from.

        ``offload`` keeps a tensor in host memory, on a stream of its own where there is one.

        Attributes:
            preset: one of :data:`PRESETS`, or empty: recompute what no option names.
            qkv: the fused query-key-value product.
            core: attention's output.
            wo: attention's output product.
            router: a mixture's router: its product, the probabilities and the chosen experts.
            up: the MLP's first product, gate and up together.
            down: the MLP's second product, which backward reads only through dropout.
        """

        preset: str = ""
        qkv: str = ""
        core: str = ""
        wo: str = ""
        router: str = ""
        up: str = ""
        down: str = ""

        def check(self) -> None:
            """Known actions, and at least one tensor to save."""
            if self.preset and self.preset not in PRESETS:
                known = ", ".join(PRESETS)
                raise UsageError("policy.preset", self.preset, f"expected one of {known}, or nothing")
            for name in NAMED:
                action = getattr(self, name)
                if action and action not in ACTIONS:
                    raise UsageError(f"policy.{name}", action, f"expected one of {', '.join(ACTIONS)}")
            if not self.kept:
                names = ", ".join(f"policy.{name}=save" for name in NAMED)
                raise UsageError("policy", "named", f"as policy=full, saves nothing; set some of {names}")

        @property
        def kept(self) -> dict[str, str]:
            """The names whose tensors are kept: ``save`` on the device, ``offload`` on the host."""
            action, names = PRESETS.get(self.preset, ("", ()))
            actions = {n: getattr(self, n) or (action if n in names else "recompute") for n in NAMED}
            return {name: action for name, action in actions.items() if action != "recompute"}

    def check(self, cell: CellConfig) -> None:
        """Names of products that the model has."""
        action = self.config.kept.get("router")
        if action and cell.model.family != "moe":
            raise Unsupported(f"policy.router={action}: a {cell.model.family} block has no router")

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Make every block a region that keeps the named tensors."""
        from suite.policies.host import HostStore
        from suite.policies.hosted import hosted_contexts
        from suite.policies.regions import checkpoint_module
        from suite.policies.selective import OperatorRule, Selection

        rules = []
        kept: dict[str, str] = self.config.kept
        for name in kept:
            operators = MATMUL_OPERATORS | _BESIDE_PRODUCTS.get(name, frozenset())
            if name == "core":
                operators = ATTENTION_OPERATORS | {"bmm"}
            rules.append(OperatorRule(Entry(name, (), operators), inside=name))
        # Without a fused operator attention's output is the second of its two batched products.
        selection = Selection(rules, second_of_two=frozenset({"bmm"}))
        contexts, store = selection.context_fn, None
        if "offload" in kept.values():
            store = HostStore(next(model.parameters()).device, min_bytes=0)
            sent = [rule.entry for rule in rules if kept[rule.inside] == "offload"]
            contexts = partial(hosted_contexts, selection, partial(_keep, store, sent))
        for index in blocks:
            block = model.blocks[index]
            modules = dict(block.named_modules())
            for rule in rules:
                paths = [path for path in NAMED[rule.inside] if path in modules]
                if not paths:
                    there = ", ".join(name for name in modules if name)
                    raise MatchedNothing(
                        f"policy.{rule.inside}: block {index} has none of its parts; it has {there}"
                    )
                for path in paths:
                    selection.mark(modules[path], rule.inside)
                    rule.entry.scope += scope_of([index], path)
            region = Entry("blocks", scope_of([index]))
            checkpoint_module(block, region, use_reentrant=False, context_fn=contexts)
            if store is not None:
                store.follow(block)
        entries, ledger = tuple(rule.entry for rule in rules), None if store is None else store.ledger
        regions = tuple(map(Region.of_block, blocks))
        return Applied(regions, entries, "policy", lambda: selection.ran, ledger)


def _keep(store: "HostStore", sent: Sequence[Entry], tensor: "Tensor", entry: Entry) -> Any:
    if any(entry is other for other in sent):
        return store.keep(tensor, entry)
    entry.hits += 1
    return tensor.detach()

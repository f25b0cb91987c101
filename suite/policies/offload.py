"""``offload``: what a policy keeps of its blocks is kept in host memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from suite.config.schema import CellConfig, PolicyConfig
from suite.errors import MatchedNothing, UsageError
from suite.policies.base import Applied, Policy, Region, require_bool, require_count
from suite.policies.entries import Entry, scope_of
from suite.policies.ops import PRESETS, Ops, check_attention
from suite.units import parse_bytes

if TYPE_CHECKING:
    from suite.models.decoder import Decoder
    from suite.policies.host import HostStore

WHAT = ("block_inputs", "saved", "selective", "module_inputs")
MODULES = ("attn", "mlp")


class Offload(Policy):
    """Activations in host memory (torchtune's OffloadActivations, Megatron-LM's and DeepSpeed's offload).

    The device keeps next to nothing of the blocks; each of their bytes crosses the bus twice, which has to
    hide behind the compute of a block.
    """

    family = "offload"
    shorthand = "what"
    compiles = False

    @dataclass(frozen=True)
    class Config(Policy.Config):
        """What goes to the host, and what stays.

        Attributes:
            what: ``block_inputs``: blocks are recomputed, as under ``full``, from inputs on the host.
                ``saved``: every tensor that autograd keeps; nothing is recomputed. ``selective``: blocks
                are recomputed, as under ``ops``, from inputs and kept outputs on the host.
                ``module_inputs``: attention and MLP are recomputed, as under ``modules``, from inputs on
                the host.
            ops: under ``selective``, a preset of the family ``ops``. The default leaves out the block's
                last product, which nothing in backward reads.
            min_bytes: smaller storages stay. A copy takes some 10 us to launch whatever its size, in which
                a bus moves hundreds of KiB; and page-locked memory comes in pages of 4 KiB.
            keep_last: so many of the last blocks stay: their backward begins before a copy could be back.
            pinned: page-locked host memory, without which a copy makes the host wait.
            host_cap: bytes that may be on the host at once; the rest stays. null: no bound.
        """

        what: str = "block_inputs"
        ops: str = "mm+attn-down"
        min_bytes: Any = 4096
        keep_last: int = 1
        pinned: bool = True
        host_cap: Any = None

        def __post_init__(self) -> None:
            for name in ("min_bytes", "host_cap"):
                value = getattr(self, name)
                if isinstance(value, str):
                    object.__setattr__(self, name, parse_bytes(value, f"policy.{name}"))

        def check(self) -> None:
            """Known words, whole numbers, and ``ops`` only where it has a meaning."""
            if self.what not in WHAT:
                raise UsageError("policy.what", self.what, f"expected one of {', '.join(WHAT)}")
            if self.ops not in PRESETS:
                raise UsageError("policy.ops", self.ops, f"expected one of {', '.join(PRESETS)}")
            if self.what != "selective" and self.ops != type(self).ops:
                raise UsageError("policy.ops", self.ops, "is for policy.what=selective only")
            require_count("policy.min_bytes", self.min_bytes)
            require_count("policy.keep_last", self.keep_last)
            require_bool("policy.pinned", self.pinned)
            if self.host_cap is not None:
                require_count("policy.host_cap", self.host_cap)

    def sent(self, depth: int) -> int:
        """How many of ``depth`` blocks send anything to the host: all but the last ones."""
        keep_last: int = self.config.keep_last
        if keep_last >= depth:
            there = f"the model has blocks 0 to {depth - 1}"
            raise MatchedNothing(f"policy.keep_last={keep_last}: leaves no block; {there}")
        return depth - keep_last

    @property
    def like(self) -> PolicyConfig:
        """The policy that keeps the same on the device: what the last blocks do."""
        if self.config.what == "block_inputs":
            return PolicyConfig("full")
        if self.config.what == "module_inputs":
            return PolicyConfig("modules", {"targets": MODULES})
        if self.config.what == "selective":
            return PolicyConfig("ops", {"save": self.config.ops})
        return PolicyConfig("none")

    def check(self, cell: CellConfig) -> None:
        """Some block must be left, and something of it to keep."""
        self.sent(cell.model.n_layers)
        if self.config.what == "selective":
            check_attention("policy.ops", PRESETS[self.config.ops], cell)

    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Make the regions, and send away what those of all but the last blocks keep."""
        from suite.policies import make_policy
        from suite.policies.host import HostStore

        config, like, count = self.config, make_policy(self.like), self.sent(len(blocks))
        sent, last = blocks[:count], blocks[count:]
        device = next(model.parameters()).device
        store = HostStore(device, config.min_bytes, pinned=config.pinned, cap_bytes=config.host_cap)
        entry, entries = Entry(config.what, scope_of(sent)), []
        if isinstance(like, Ops):
            entry = Entry("inputs", scope_of(sent), required=False)
            entries = _keep_outputs(like, model, sent, store)
            regions = tuple(map(Region.of_block, sent))
        else:
            regions = like.apply(model, sent).regions
        parts = MODULES if config.what == "module_inputs" else ("",)
        for path in (path for part in parts for path in scope_of(sent, part)):
            store.keep_for(model.get_submodule(path), entry)
        if last:
            regions += like.apply(model, last).regions
        for index in blocks:
            store.follow(model.blocks[index])
        entries = [*entries, entry]
        return Applied(regions, tuple(entries), "policy.what", store.left, store.ledger)


def _keep_outputs(like: Ops, model: "Decoder", blocks: Sequence[int], store: "HostStore") -> list[Entry]:
    """Make each block a region whose kept outputs are in ``store``."""
    from suite.policies.hosted import hosted_contexts
    from suite.policies.regions import checkpoint_module

    entries, selection = like.select(model, blocks)
    region = Entry("blocks", scope_of(blocks))
    contexts = partial(hosted_contexts, selection, store.keep)
    for index in blocks:
        checkpoint_module(model.blocks[index], region, use_reentrant=False, context_fn=contexts)
    return entries

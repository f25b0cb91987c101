"""Formulas of the family that keeps in host memory what others keep on the device: offload."""

from collections.abc import Sequence

from suite.config.schema import CellConfig, PolicyConfig
from suite.policies import make_policy
from suite.policies.offload import Offload
from suite.policies.ops import Ops
from suite.predict.policies.operators import ops, selected_outputs
from suite.predict.policies.regions import full, input_bytes, keep_all, modules
from suite.predict.policies.trunk import Rule, Trunk
from suite.predict.tensors import block_tensors

_LIKE: dict[str, Rule] = {"full": full, "none": keep_all, "ops": ops, "modules": modules}


def offload(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """What the family keeps that it is like; of all but the last blocks, on the host.

    While a block is in backward, what it needs and what the one before will need are both back.
    """
    family = make_policy(policy)
    assert isinstance(family, Offload)
    like = family.like
    kept = _LIKE[like.family](config, like, blocks)
    sizes = [n for n in candidates(config, family) if n >= family.config.min_bytes]
    wanted, cap = family.sent(len(blocks)) * sum(sizes), family.config.host_cap
    fits = cap is None or wanted <= cap
    host = wanted if fits else cap
    return Trunk(
        kept.saved_bytes - host,
        kept.transient_bytes + 2 * sum(sizes),
        kept.recomputed_flops,
        host,
        exact=kept.exact and fits,
    )


def candidates(config: CellConfig, family: Offload) -> list[int]:
    """Bytes of each tensor of one block that would be sent, however small."""
    like, tensors = make_policy(family.like), block_tensors(config)
    if isinstance(like, Ops):
        products, attention = selected_outputs(config, like)
        return [input_bytes(config), *products.values(), *attention.values()]
    if family.config.what == "saved":
        return [t.nbytes for t in tensors if t.kept]
    if family.config.what == "module_inputs":
        return [t.nbytes for t in tensors if t.name in ("attn_norm.out", "mlp_norm.out")]
    return [input_bytes(config)]

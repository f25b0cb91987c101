"""Formulas of the family that keeps eight bits an element: compressed."""

from collections.abc import Sequence

from suite.config.schema import CellConfig, PolicyConfig
from suite.models.shape import head_dim
from suite.policies import make_policy
from suite.policies.compressed import Compressed
from suite.predict.policies.regions import block_replay
from suite.predict.policies.trunk import Trunk
from suite.predict.tensors import (
    Tensor,
    attention_in_float32,
    block_tensors,
    element_bytes,
    fused_attention,
    total,
)

_SCALE_BYTES = 4
# What stays exact, by the last part of its name: statistics, masks and biases.
_EXACT = frozenset({"rstd", "mean", "lse", "mask", "bias"})
# And of a mixture: what are whole numbers, has no gradient, or one number in a row.
_EXACT_OF_MIXTURE = frozenset(
    {"mlp.order", "mlp.inverse", "mlp.offsets", "mlp.weights"}
    | {f"mlp.router.{what}" for what in ("indices", "sum", "fractions")}
)


def compressed(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """One byte an element and the scales; under ``inputs`` the blocks are recomputed."""
    family = make_policy(policy)
    assert isinstance(family, Compressed)
    tensors, depth = block_tensors(config), len(blocks)
    if family.config.what == "inputs":
        # The first tensor is the block's input; a norm that casts it is inside the region.
        return Trunk(
            depth * _kept(config, family, tensors[0], element_bytes(config)),
            total(tensors) + tensors[0].nbytes,
            depth * block_replay(config),
        )
    sizes = {t: _kept(config, family, t, _element_bytes(config, t)) for t in tensors if t.kept}
    largest = max(t.nbytes for t in tensors)
    return Trunk(depth * sum(sizes.values()), largest)


def _kept(config: CellConfig, family: Compressed, tensor: Tensor, element: int) -> int:
    exact = tensor.name in _EXACT_OF_MIXTURE or tensor.name.split(".")[-1] in _EXACT
    if tensor.nbytes < family.config.min_bytes or exact:
        return tensor.nbytes
    count = tensor.nbytes // element
    rows = count // _row_length(config, tensor.name) if family.config.scale == "row" else 1
    return min(tensor.nbytes, count + _SCALE_BYTES * rows)


def _element_bytes(config: CellConfig, tensor: Tensor) -> int:
    """Norms, and attention where it falls apart, compute in float32."""
    part, _, name = tensor.name.rpartition(".")
    widened = (
        name in ("cast", "scaled")
        or part == "mlp.router"
        or (part == "core" and name != "out" and attention_in_float32(config))
    )
    return 4 if widened else element_bytes(config)


def _row_length(config: CellConfig, name: str) -> int:
    """Elements in a row, in the shape in which autograd first sees the tensor."""
    model, part = config.model, name.split(".")[0]
    if name in ("core.weights", "core.dropped"):
        return config.seq_len
    if name == "core.k" and config.batch_size > 1:
        return config.seq_len  # a copy that the product reads transposed
    if name == "core.out" and not fused_attention(config):
        return model.n_heads * head_dim(model)  # the output product is the first to keep it
    if part == "core" or name in ("attn.qkv", "attn.rotated_qk", "attn.v"):
        return head_dim(model)
    in_mixture = {"mlp.rows": model.d_model, "mlp.unsorted": model.d_model}
    in_mixture |= {"mlp.router.probabilities": model.n_experts, "mlp.router.chosen": model.top_k}
    if name in in_mixture:
        return in_mixture[name]
    if name.startswith("mlp.shared."):
        return model.n_shared_experts * model.d_ff
    if name == "mlp.gate_up":
        return model.d_ff  # gate and up are two views of it
    return model.d_ff if part == "mlp" else model.d_model

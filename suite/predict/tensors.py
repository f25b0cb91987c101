"""The tensors of a block by name and size: what autograd keeps of it, and what its operators return.

The terms are those of ``policies.md``'s notation: u is a block's input, e bytes an element; r = heads *
head_dim / h, kappa = kv_heads / heads, phi = d_ff / h; a mixture of experts has top_k assignments a token,
and every size is the same however they are spread. They hold for the eager models of
:mod:`suite.models`; a norm that is fused, or a dropout that packs its mask, keeps less, and which of
them runs is a property of the device (:class:`Kernels`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from suite.config.schema import CellConfig
from suite.models.shape import FAMILIES, head_dim


@dataclass(frozen=True)
class Tensor:
    """A tensor of a block.

    Attributes:
        name: ``part.what``; the part is the submodule that is at work.
        nbytes: of its storage.
        kept: autograd keeps it when nothing is recomputed.
    """

    name: str
    nbytes: int
    kept: bool = True


@dataclass(frozen=True)
class Kernels:
    """What a device's operators keep, beyond their inputs and outputs.

    Attributes:
        fused_rms_norm: one operator that keeps its input and one number a row; the composite also keeps
            the normalised input, in float32 whatever the model's precision.
        fused_dropout: the mask is one byte an element; the CPU's has the element's own size.
        statistic_bytes: of a LayerNorm's mean and of its reciprocal deviation.
        attention_dropout: fused attention runs with dropout; on the CPU it then falls apart.
    """

    fused_rms_norm: bool
    fused_dropout: bool
    statistic_bytes: int
    attention_dropout: bool


def kernels_of(config: CellConfig) -> Kernels:
    """What runs for this cell: torch 2.13 on the CPU, CUDA's fused operators on an accelerator."""
    if config.device == "cpu":
        return Kernels(False, False, element_bytes(config), attention_dropout=False)
    return Kernels(True, True, 4, attention_dropout=True)


def element_bytes(config: CellConfig) -> int:
    """Bytes of an element of an activation. Under bf16-mixed products are bf16: an approximation."""
    return 4 if config.precision == "fp32" else 2


def fused_attention(config: CellConfig) -> bool:
    """Whether a fused attention operator runs."""
    if config.attention == "eager":
        return False
    return config.model.dropout == 0 or kernels_of(config).attention_dropout


@dataclass(frozen=True)
class Sizes:
    """The sizes that every term is made of, in bytes."""

    u: int
    rows: int
    heads: int
    keys: int
    scores: int
    ffn: int

    @classmethod
    def of(cls, config: CellConfig) -> "Sizes":
        """Of one block of the cell."""
        model, e = config.model, element_bytes(config)
        rows, width = config.batch_size * config.seq_len, head_dim(model)
        return cls(
            u=e * rows * model.d_model,
            rows=rows,
            heads=e * rows * model.n_heads * width,
            keys=e * rows * model.n_kv_heads * width,
            scores=e * model.n_heads * rows * config.seq_len,
            ffn=e * rows * model.d_ff,
        )


def block_tensors(config: CellConfig) -> list[Tensor]:
    """Every tensor of one block that some policy keeps or rebuilds, in forward order."""
    sizes = Sizes.of(config)
    return [
        *norm_tensors("attn_norm", config, sizes),
        *_projections(config, sizes),
        *_core(config, sizes),
        *_dropout("attn.mask", sizes.u, config),
        *norm_tensors("mlp_norm", config, sizes),
        *_mlp(config, sizes),
        *_dropout("mlp.mask", sizes.u, config),
    ]


def operator_outputs(config: CellConfig) -> dict[str, dict[str, int]]:
    """Bytes that keeping an operator's output holds in one block: operator group, output, bytes."""
    sizes = Sizes.of(config)
    model, e = config.model, element_bytes(config)
    gated = 2 if FAMILIES[model.family].gated else 1
    products = {"qkv": sizes.heads + 2 * sizes.keys, "out": sizes.u}
    if FAMILIES[model.family].routed:
        products |= {
            "router": e * sizes.rows * model.n_experts,
            "up": gated * model.top_k * sizes.ffn,
            "down": model.top_k * sizes.u,
        }
        if model.n_shared_experts:
            shared = gated * model.n_shared_experts * sizes.ffn
            products |= {"shared_up": shared, "shared_down": sizes.u}
    else:
        products |= {"up": gated * sizes.ffn, "down": sizes.u}
    returned = _core(config, sizes)[:2] if fused_attention(config) else []
    attention = {t.name: t.nbytes for t in returned}
    return {"mm": products, "attn": attention}


def norm_tensors(part: str, config: CellConfig, sizes: Sizes) -> list[Tensor]:
    """What one norm keeps. Its input is there once, however many use it."""
    kernels = kernels_of(config)
    if not FAMILIES[config.model.family].rms_norm:
        statistic = kernels.statistic_bytes * sizes.rows
        inside = [Tensor(f"{part}.mean", statistic), Tensor(f"{part}.rstd", statistic)]
        return [Tensor(f"{part}.input", sizes.u), *inside, Tensor(f"{part}.out", sizes.u)]
    rstd = Tensor(f"{part}.rstd", 4 * sizes.rows)
    out = Tensor(f"{part}.out", sizes.u)
    if kernels.fused_rms_norm:
        return [Tensor(f"{part}.input", sizes.u), rstd, out]
    in_float32 = sizes.u * 4 // element_bytes(config)
    scaled = Tensor(f"{part}.scaled", in_float32)
    if element_bytes(config) == 4:
        return [Tensor(f"{part}.input", sizes.u), scaled, rstd, out]
    cast = Tensor(f"{part}.cast", in_float32)
    return [Tensor(f"{part}.input", sizes.u, kept=False), cast, scaled, rstd, out]


def _projections(config: CellConfig, sizes: Sizes) -> list[Tensor]:
    # Batched products read q, k and v as (batch * heads, s, d): a view for one sequence, copies for
    # more, and then the copies are kept in place of these. So are float32 casts.
    viewed = fused_attention(config) or (config.batch_size == 1 and not attention_in_float32(config))
    if FAMILIES[config.model.family].learned_positions:
        return [Tensor("attn.qkv", sizes.heads + 2 * sizes.keys, kept=viewed)]
    return [
        Tensor("attn.rotated_qk", sizes.heads + sizes.keys, kept=viewed),
        Tensor("attn.v", sizes.keys, kept=viewed),
    ]


def _core(config: CellConfig, sizes: Sizes) -> list[Tensor]:
    """Attention's own tensors; ``core.out`` is what the output product reads."""
    if fused_attention(config):
        lse = 4 * config.model.n_heads * sizes.rows
        out = [Tensor("core.out", sizes.heads), Tensor("core.lse", lse)]
        if config.data.kind == "packed":
            # The fused operator takes the boolean mask as a bias, and keeps one for each block.
            out.append(Tensor("core.bias", element_bytes(config) * sizes.rows * config.seq_len))
        return out
    wider = 4 // element_bytes(config) if attention_in_float32(config) else 1
    copied = config.batch_size > 1
    inside = [
        Tensor("core.q", wider * sizes.heads),
        # Torch's own fallback scales k as it scales q; the eager kernel scales q alone.
        Tensor("core.k", wider * sizes.keys, kept=copied or config.attention != "eager"),
        Tensor("core.v", wider * sizes.keys, kept=copied or attention_in_float32(config)),
        Tensor("core.weights", wider * sizes.scores),
    ]
    if config.model.dropout:
        inside += _dropout("core.mask", wider * sizes.scores, config)
        inside.append(Tensor("core.dropped", wider * sizes.scores))
    return [*inside, Tensor("core.out", sizes.heads)]


def attention_in_float32(config: CellConfig) -> bool:
    """Torch's fallback for fused attention computes in float32 where the model is 16 bits wide."""
    return config.attention != "eager" and not fused_attention(config) and element_bytes(config) < 4


def _mlp(config: CellConfig, sizes: Sizes) -> list[Tensor]:
    family = FAMILIES[config.model.family]
    if family.routed:
        return _mixture(config, sizes)
    if family.gated:
        return _swiglu("mlp", sizes.ffn)
    return [Tensor("mlp.up", sizes.ffn), Tensor("mlp.act", sizes.ffn)]


def _swiglu(part: str, nbytes: int) -> list[Tensor]:
    """Of a SwiGLU MLP whose hidden activation is ``nbytes``."""
    return [
        Tensor(f"{part}.gate_up", 2 * nbytes),
        Tensor(f"{part}.silu", nbytes),
        Tensor(f"{part}.act", nbytes),
    ]


def _mixture(config: CellConfig, sizes: Sizes) -> list[Tensor]:
    """Router, permutation, experts on ``top_k`` rows a token, and what the weights multiply."""
    model = config.model
    assignments = sizes.rows * model.top_k
    router = [
        Tensor("mlp.router.probabilities", 4 * sizes.rows * model.n_experts),
        Tensor("mlp.router.indices", 8 * assignments),
    ]
    if model.top_k > 1:  # the division by their sum
        router += [Tensor("mlp.router.chosen", 4 * assignments), Tensor("mlp.router.sum", 4 * sizes.rows)]
    if model.aux_loss:
        router.append(Tensor("mlp.router.fractions", 4 * model.n_experts))
    routed = [
        Tensor("mlp.order", 8 * assignments),
        Tensor("mlp.inverse", 8 * assignments),
        Tensor("mlp.offsets", 4 * model.n_experts),
        Tensor("mlp.rows", model.top_k * sizes.u),
        *_swiglu("mlp.experts", model.top_k * sizes.ffn),
        Tensor("mlp.unsorted", model.top_k * sizes.u),
        Tensor("mlp.weights", element_bytes(config) * assignments),
    ]
    shared = _swiglu("mlp.shared", model.n_shared_experts * sizes.ffn) if model.n_shared_experts else []
    return [*router, *routed, *shared]


def _dropout(name: str, nbytes: int, config: CellConfig) -> list[Tensor]:
    if not config.model.dropout:
        return []
    fused = kernels_of(config).fused_dropout
    return [Tensor(name, nbytes // element_bytes(config) if fused else nbytes)]


def total(tensors: Iterable[Tensor]) -> int:
    """Bytes of those that autograd keeps."""
    return sum(t.nbytes for t in tensors if t.kept)

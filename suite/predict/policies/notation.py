"""The catalogue's symbols and what each is worth for a cell, so that formulas can be shown and checked.

Bytes are of one block, FLOPs of one block's forward. Which tensors a norm or attention keeps is the
device's doing: ``N`` and ``C`` stand for it, and their definitions say what they are made of here. Of a
mixture of experts φ is the width of the experts that a token goes through, shared ones included.
"""

from dataclasses import dataclass
from fractions import Fraction

from suite.config.schema import CellConfig
from suite.models.shape import FAMILIES, head_dim
from suite.predict.flops import block_flops, head_flops
from suite.predict.tensors import (
    Sizes,
    block_tensors,
    fused_attention,
    kernels_of,
    norm_tensors,
    total,
)


@dataclass(frozen=True)
class Symbol:
    """One symbol.

    Attributes:
        value: in ``unit``; exact.
        unit: ``bytes``, ``flops`` or empty for a plain number.
        meaning: in words.
        definition: from the model's sizes or from other symbols; empty where the value is all there is.
    """

    value: Fraction
    unit: str
    meaning: str
    definition: str = ""


def symbols_of(config: CellConfig) -> dict[str, Symbol]:
    """Every symbol that a formula of this cell may use."""
    model, sizes, flops = config.model, Sizes.of(config), block_flops(config)
    norm, family = norm_tensors("norm", config, sizes), FAMILIES[model.family]
    active = model.top_k + model.n_shared_experts if family.routed else 1
    tensors = block_tensors(config)
    router = total(t for t in tensors if t.name.startswith("mlp.router."))
    mlp = total(t for t in tensors if t.name.startswith("mlp.") and t.name != "mlp.mask")
    order = mlp - 4 * active * sizes.ffn if family.routed else 0
    statistic = next(t.nbytes for t in norm if t.name.endswith(".rstd"))
    core = _core_bytes(config)
    lse = 4 * model.n_heads * sizes.rows if fused_attention(config) else 0
    mask = next((t.nbytes for t in tensors if t.name == "mlp.mask"), 0)
    plain = [
        (
            "r",
            Fraction(model.n_heads * head_dim(model), model.d_model),
            "queries' width",
            "heads · head_dim / h",
        ),
        ("κ", Fraction(model.n_kv_heads, model.n_heads), "grouping of keys", "kv_heads / heads"),
        ("φ", Fraction(active * model.d_ff, model.d_model), "MLP's width", f"{_active(active)}d_ff / h"),
        ("ξ", Fraction(model.n_experts, model.d_model), "router's width", "experts / h"),
    ]
    held = [
        ("u", sizes.u, "a block's input", f"{sizes.u // sizes.rows // model.d_model} · b · s · h"),
        ("A", total(tensors), "all that none keeps of a block", _everything(config)),
        ("N", total(norm) - sizes.u, "one norm's own: output, statistics", norm_terms(config, outputs=1)),
        ("C", core, "attention's own: what it keeps beside q, k, v", _core_definition(config, core)),
        ("RSTD", statistic, "one statistic of a norm", "b · s numbers"),
        ("LSE", lse, "fused attention's log-sum-exp", "4 · heads · b · s"),
        ("S", sizes.scores, "one matrix of attention scores", "heads · b · s² numbers"),
        ("D", mask, "one dropout mask", ""),
        ("R", router, "the router's own", ""),
        ("P", order, "a mixture's router, order and copies of rows", ""),
    ]
    worked = [
        (
            "Fg",
            flops.total - flops.scores,
            "a block's products with weights",
            f"Fqkv + Fo + Fgu + Fd{' + Fr' if family.routed else ''}",
        ),
        ("Fs", flops.scores, "attention, as if not causal", "4 · b · s² · heads · head_dim"),
        ("Fqkv", flops.qkv, "the q, k, v product", ""),
        ("Fo", flops.out, "attention's output product", ""),
        ("Fgu", flops.up + flops.shared_up, f"{'gate and up' if family.gated else 'up'} products", ""),
        ("Fd", flops.down + flops.shared_down, "the down product", ""),
        ("Fr", flops.router, "the router", ""),
        ("Fsd", flops.shared_down, "the shared experts' down product", ""),
        ("Fh", head_flops(config), "the head, once for all blocks", "2 · b · s · h · vocabulary"),
    ]
    return {
        **{name: Symbol(value, "", words, text) for name, value, words, text in plain if value},
        **{name: Symbol(Fraction(n), "bytes", words, text) for name, n, words, text in held if n},
        **{name: Symbol(Fraction(n), "flops", words, text) for name, n, words, text in worked if n},
    }


def norm_terms(config: CellConfig, *, outputs: int = 0, norms: int = 1) -> str:
    """What so many norms keep beside their inputs, of their outputs only ``outputs`` each."""
    if not FAMILIES[config.model.family].rms_norm:
        copies, statistics = 0, 2
    elif kernels_of(config).fused_rms_norm:
        copies, statistics = 0, 1
    else:
        # The composite keeps the scaled input in float32; a narrower input, as a float32 copy in its place.
        copies, statistics = 1 if config.precision == "fp32" else 3, 1
    counts = ((norms * (copies + outputs), "u"), (norms * statistics, "RSTD"))
    return " + ".join(f"{count if count > 1 else ''}{name}" for count, name in counts if count)


def core_terms(config: CellConfig) -> list[str]:
    """``C`` taken apart where a fused operator runs without a mask, else ``C`` itself."""
    return ["ru", "LSE"] if fused_attention(config) and config.data.kind != "packed" else ["C"]


def _core_bytes(config: CellConfig) -> int:
    # Where attention keeps copies of q, k and v in place of the product's output, they count as that.
    tensors = block_tensors(config)
    inputs = sum(t.nbytes for t in tensors if t.name in ("attn.qkv", "attn.rotated_qk", "attn.v"))
    kept = total(t for t in tensors if t.name.startswith("core."))
    unkept = inputs - total(t for t in tensors if t.name.startswith("attn.") and t.name != "attn.mask")
    return kept - unkept


def _core_definition(config: CellConfig, core: int) -> str:
    terms = core_terms(config)
    if terms != ["C"]:
        return " + ".join(terms)
    sizes = Sizes.of(config)
    if fused_attention(config):
        return "ru + LSE + a mask"
    squares = total(
        t for t in block_tensors(config) if t.name in ("core.weights", "core.mask", "core.dropped")
    )
    return (
        f"{_times(Fraction(squares, sizes.scores), 'S')} + {_times(Fraction(core - squares, sizes.u), 'u')}"
    )


def _times(count: Fraction, symbol: str) -> str:
    return symbol if count == 1 else f"{float(count):.4g}{symbol}"


def _everything(config: CellConfig) -> str:
    family = FAMILIES[config.model.family]
    inside = "4φ" if family.gated else "2φ"
    also = [*(["2D"] if config.model.dropout else []), *(["P"] if family.routed else [])]
    return " + ".join([f"u[2 + r(1+2κ) + {inside}]", "2N", "C", *also])


def _active(experts: int) -> str:
    return f"{experts} · " if experts > 1 else ""

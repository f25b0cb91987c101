"""Whether a model can be built and run, said before a child exists. Torch-free."""

import math

from suite.config.schema import ATTENTIONS, CellConfig, ModelConfig
from suite.errors import Impossible, Unsupported, UsageError
from suite.models.shape import FAMILIES, head_dim

_SIZES = ("vocab_size", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "max_seq_len")
_BYTE_VALUES = 256


def check_model(config: CellConfig) -> None:
    """Raise UsageError if no device could build and run the model; see also :func:`check_kernel`."""
    model = config.model
    if model.family not in FAMILIES:
        raise UsageError("model.family", model.family, f"expected one of {', '.join(FAMILIES)}")
    _check_sizes(model)
    _check_heads(model)
    _check_experts(model)
    _check_rates(model)
    _check_workload(config)


def check_kernel(config: CellConfig) -> None:
    """Raise Unsupported if ``attention`` names a kernel that cannot run this workload on this device."""
    if config.attention != "flash":
        return
    if config.device == "cpu":
        if config.model.dropout > 0:
            raise Unsupported(
                "attention=flash: no dropout on the CPU; use sdpa or eager, or model.dropout=0"
            )
        return
    if config.data.kind == "packed":
        raise Unsupported("attention=flash: takes no mask, which data=packed needs; use sdpa or eager")
    if config.precision == "fp32":
        raise Unsupported(
            "attention=flash: computes in 16 bits; use sdpa or eager, or precision=bf16-mixed or bf16-true"
        )


def _check_sizes(model: ModelConfig) -> None:
    for name in _SIZES:
        value = getattr(model, name)
        if value < 1:
            raise UsageError(f"model.{name}", value, "expected a whole number >= 1")
    if model.head_dim < 0:
        raise UsageError("model.head_dim", model.head_dim, "expected 0 (d_model / n_heads) or a size >= 1")


def _check_heads(model: ModelConfig) -> None:
    if model.head_dim == 0 and model.d_model % model.n_heads:
        raise UsageError(
            "model.n_heads",
            model.n_heads,
            f"must divide model.d_model={model.d_model}, or set model.head_dim",
        )
    if model.n_heads % model.n_kv_heads:
        raise UsageError("model.n_kv_heads", model.n_kv_heads, f"must divide model.n_heads={model.n_heads}")
    if not FAMILIES[model.family].learned_positions and head_dim(model) % 2:
        width = head_dim(model)
        if model.head_dim:
            raise UsageError("model.head_dim", width, "RoPE turns pairs: expected an even number")
        raise UsageError(
            "model.n_heads",
            model.n_heads,
            f"gives heads of {width} from model.d_model={model.d_model}; RoPE needs an even width",
        )


def _check_experts(model: ModelConfig) -> None:
    if not FAMILIES[model.family].routed:
        for name in ("n_experts", "top_k", "aux_loss", "n_shared_experts"):
            value = getattr(model, name)
            if value:
                raise UsageError(f"model.{name}", value, f"the {model.family} family has no experts: use 0")
        return
    if model.n_experts < 1:
        raise UsageError("model.n_experts", model.n_experts, "expected a whole number >= 1")
    if not 1 <= model.top_k <= model.n_experts:
        raise UsageError(
            "model.top_k",
            model.top_k,
            f"expected a whole number from 1 to model.n_experts={model.n_experts}",
        )
    if model.n_shared_experts < 0:
        raise UsageError("model.n_shared_experts", model.n_shared_experts, "expected a whole number >= 0")
    if not 0 <= model.aux_loss < math.inf:
        raise UsageError("model.aux_loss", model.aux_loss, "expected a finite coefficient >= 0")


def _check_rates(model: ModelConfig) -> None:
    if not 0 <= model.dropout < 1:
        raise UsageError("model.dropout", model.dropout, "expected a probability in [0, 1)")
    if model.dropout and not FAMILIES[model.family].dropout:
        raise UsageError("model.dropout", model.dropout, f"the {model.family} family has none: use 0")
    for name in ("norm_eps", "rope_theta"):
        value = getattr(model, name)
        if not value > 0:
            raise UsageError(f"model.{name}", value, "expected a number > 0")


def _check_workload(config: CellConfig) -> None:
    model = config.model
    for name in ("seq_len", "batch_size"):
        value = getattr(config, name)
        if value < 1:
            raise UsageError(name, value, "expected a whole number >= 1")
    if FAMILIES[model.family].learned_positions and config.seq_len > model.max_seq_len:
        raise Impossible(
            "seq_len",
            config.seq_len,
            f"{model.name} has learned positions up to model.max_seq_len={model.max_seq_len}",
        )
    if config.attention not in ATTENTIONS:
        raise UsageError("attention", config.attention, f"expected one of {', '.join(ATTENTIONS)}")
    if config.data.kind == "bytes" and model.vocab_size < _BYTE_VALUES:
        raise Impossible(
            "model.vocab_size", model.vocab_size, f"data=bytes needs at least {_BYTE_VALUES} tokens"
        )

"""What is known of a model without building it. Torch-free: the parent process plans with it."""

from collections.abc import Callable
from dataclasses import dataclass

from suite.config.schema import ModelConfig


@dataclass(frozen=True)
class Family:
    """A model family.

    Attributes:
        decoder: ``module:class`` of its :class:`~suite.models.decoder.Decoder`.
        learned_positions: positions are a table of ``max_seq_len`` rows; otherwise they are rotations.
        dropout: the family has dropout layers.
        rms_norm: norms are RMSNorm; otherwise LayerNorm.
        gated: MLPs are SwiGLU, with a gate beside the first product; otherwise GELU.
        routed: the MLP is a mixture of experts.
        trunk_parameters: parameters of everything but the token embedding and the head.
    """

    decoder: str
    learned_positions: bool
    dropout: bool
    rms_norm: bool
    gated: bool
    routed: bool
    trunk_parameters: Callable[[ModelConfig], int]


def head_dim(config: ModelConfig) -> int:
    """Width of one attention head."""
    return config.head_dim or config.d_model // config.n_heads


def parameter_count(config: ModelConfig) -> int:
    """Trainable parameters, a tied head counted once. Exact."""
    table = config.vocab_size * config.d_model
    return table * (1 if config.tied_head else 2) + FAMILIES[config.family].trunk_parameters(config)


def active_parameter_count(config: ModelConfig) -> int:
    """Parameters that compute one token: all of them but the experts that it is not routed to. Exact."""
    idle = config.n_experts - config.top_k
    return parameter_count(config) - config.n_layers * idle * _swiglu(config)


def _swiglu(config: ModelConfig) -> int:
    return 3 * config.d_model * config.d_ff


def _attention_widths(config: ModelConfig) -> tuple[int, int]:
    """Outputs of the fused query-key-value product, and inputs of the output product."""
    width = head_dim(config)
    return (config.n_heads + 2 * config.n_kv_heads) * width, config.n_heads * width


def _gpt(config: ModelConfig) -> int:
    d, f = config.d_model, config.d_ff
    qkv, mixed = _attention_widths(config)
    norm = 2 * d
    block = 2 * norm + (d + 1) * qkv + (mixed + 1) * d + (d + 1) * f + (f + 1) * d
    return config.n_layers * block + norm + config.max_seq_len * d


def _llama(config: ModelConfig) -> int:
    return _llama_blocks(config, _swiglu(config))


def _moe(config: ModelConfig) -> int:
    experts = (config.n_experts + config.n_shared_experts) * _swiglu(config)
    return _llama_blocks(config, config.d_model * config.n_experts + experts)


def _llama_blocks(config: ModelConfig, mlp: int) -> int:
    d = config.d_model
    qkv, mixed = _attention_widths(config)
    return config.n_layers * (2 * d + d * qkv + mixed * d + mlp) + d


FAMILIES: dict[str, Family] = {
    "gpt": Family(
        "suite.models.gpt:GPT",
        learned_positions=True,
        dropout=True,
        rms_norm=False,
        gated=False,
        routed=False,
        trunk_parameters=_gpt,
    ),
    "llama": Family(
        "suite.models.llama:Llama",
        learned_positions=False,
        dropout=False,
        rms_norm=True,
        gated=True,
        routed=False,
        trunk_parameters=_llama,
    ),
    "moe": Family(
        "suite.models.moe:Moe",
        learned_positions=False,
        dropout=False,
        rms_norm=True,
        gated=True,
        routed=True,
        trunk_parameters=_moe,
    ),
}

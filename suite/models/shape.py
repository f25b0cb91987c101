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
        trunk_parameters: parameters of everything but the token embedding and the head.
    """

    decoder: str
    learned_positions: bool
    dropout: bool
    trunk_parameters: Callable[[ModelConfig], int]


def head_dim(config: ModelConfig) -> int:
    """Width of one attention head."""
    return config.head_dim or config.d_model // config.n_heads


def parameter_count(config: ModelConfig) -> int:
    """Trainable parameters, a tied head counted once. Exact."""
    table = config.vocab_size * config.d_model
    return table * (1 if config.tied_head else 2) + FAMILIES[config.family].trunk_parameters(config)


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
    d, f = config.d_model, config.d_ff
    qkv, mixed = _attention_widths(config)
    block = 2 * d + d * qkv + mixed * d + d * 2 * f + f * d
    return config.n_layers * block + d


FAMILIES: dict[str, Family] = {
    "gpt": Family("suite.models.gpt:GPT", learned_positions=True, dropout=True, trunk_parameters=_gpt),
    "llama": Family(
        "suite.models.llama:Llama", learned_positions=False, dropout=False, trunk_parameters=_llama
    ),
}

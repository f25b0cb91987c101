"""FLOPs of a forward, term by term, as the catalogue names them: Fqkv, Fs, Fo, Fgu, Fd.

Counted as torch's ``FlopCounterMode`` counts: matrix products only, attention as if not causal.
"""

from dataclasses import dataclass

from suite.config.schema import CellConfig
from suite.models.shape import head_dim
from suite.predict.tensors import fused_attention


@dataclass(frozen=True)
class BlockFlops:
    """Forward FLOPs of one block.

    Attributes:
        qkv: the fused query-key-value product.
        scores: attention: the two products of s^2.
        out: the output product.
        up: the MLP's first product (gate and up together where there is a gate).
        down: the MLP's second product.
    """

    qkv: int
    scores: int
    out: int
    up: int
    down: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.qkv + self.scores + self.out + self.up + self.down


def block_flops(config: CellConfig) -> BlockFlops:
    """Of one block of the cell."""
    model = config.model
    rows, width = config.batch_size * config.seq_len, head_dim(model)
    gated = 2 if model.family == "llama" else 1
    return BlockFlops(
        qkv=2 * rows * model.d_model * (model.n_heads + 2 * model.n_kv_heads) * width,
        scores=4 * rows * config.seq_len * model.n_heads * width,
        out=2 * rows * model.n_heads * width * model.d_model,
        up=2 * rows * model.d_model * gated * model.d_ff,
        down=2 * rows * model.d_ff * model.d_model,
    )


def head_flops(config: CellConfig) -> int:
    """Forward of the head's product."""
    return 2 * config.batch_size * config.seq_len * config.model.d_model * config.model.vocab_size


def model_flops(config: CellConfig) -> int:
    """Forward and backward of a step that recomputes nothing.

    Backward is twice the forward, but fused attention rebuilds its scores: five products for two.
    """
    block = block_flops(config)
    head = head_flops(config)
    extra = block.scores // 2 if fused_attention(config) else 0
    return config.model.n_layers * (3 * block.total + extra) + 3 * head

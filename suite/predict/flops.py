"""FLOPs of a forward, term by term, as the catalogue names them: Fqkv, Fs, Fo, Fgu, Fd.

Counted as torch's ``FlopCounterMode`` counts: matrix products only, attention as if not causal.
"""

from dataclasses import dataclass

from suite.config.schema import CellConfig
from suite.models.shape import FAMILIES, head_dim
from suite.predict.tensors import fused_attention


@dataclass(frozen=True)
class BlockFlops:
    """Forward FLOPs of one block.

    Attributes:
        qkv: the fused query-key-value product.
        scores: attention: the two products of s^2.
        out: the output product.
        up: the MLP's first product (gate and up together where there is a gate), of all routed experts.
        down: the MLP's second product, of all routed experts.
        router: a mixture's scores; 0 without one.
        shared_up: the first product of the shared experts; 0 without any.
        shared_down: their second one.
    """

    qkv: int
    scores: int
    out: int
    up: int
    down: int
    router: int = 0
    shared_up: int = 0
    shared_down: int = 0

    @property
    def mlp(self) -> int:
        """Everything after the second norm."""
        return self.router + self.up + self.down + self.shared_up + self.shared_down

    @property
    def total(self) -> int:
        """All of them."""
        return self.qkv + self.scores + self.out + self.mlp

    @property
    def unread(self) -> dict[str, int]:
        """The block's last product by name, if nothing but dropout reads in backward what it returned.

        A router's weights read what the routed experts returned.
        """
        if not self.router:
            return {"down": self.down}
        return {"shared_down": self.shared_down} if self.shared_down else {}


def block_flops(config: CellConfig) -> BlockFlops:
    """Of one block of the cell."""
    model = config.model
    rows, width = config.batch_size * config.seq_len, head_dim(model)
    family = FAMILIES[model.family]
    gated = 2 if family.gated else 1
    mlp = 2 * rows * model.d_model * model.d_ff
    routed = model.top_k if family.routed else 1
    return BlockFlops(
        qkv=2 * rows * model.d_model * (model.n_heads + 2 * model.n_kv_heads) * width,
        scores=4 * rows * config.seq_len * model.n_heads * width,
        out=2 * rows * model.n_heads * width * model.d_model,
        up=routed * gated * mlp,
        down=routed * mlp,
        router=2 * rows * model.d_model * model.n_experts,
        shared_up=model.n_shared_experts * gated * mlp,
        shared_down=model.n_shared_experts * mlp,
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


def forward_flops(config: CellConfig) -> int:
    """Of a forward, the head's product included."""
    return config.model.n_layers * block_flops(config).total + head_flops(config)

"""GPT-2's block: LayerNorm, GELU, biases, learned positions, dropout (Radford et al. 2019)."""

from torch import Tensor, nn

from suite.config.schema import ModelConfig
from suite.models.attention import Attention
from suite.models.decoder import Block, Decoder
from suite.models.layers import DrawnByDecoder, Linear


class GeluMlp(nn.Module):
    """``down(gelu(up(x)))`` and dropout. The tanh form of GELU, which GPT-2 and Megatron-LM train with."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = Linear(config.d_model, config.d_ff)
        self.act = nn.GELU(approximate="tanh")
        self.down = Linear(config.d_ff, config.d_model)
        self.dropout = nn.Dropout(config.dropout) if config.dropout else None

    def forward(self, x: Tensor) -> Tensor:
        """(b, s, d_model) to the same shape."""
        out = self.project(x)
        return out if self.dropout is None else self.dropout(out)

    def project(self, x: Tensor) -> Tensor:
        """Token by token, without dropout. Policies that tile the MLP replace this on the instance."""
        out: Tensor = self.down(self.act(self.up(x)))
        return out


class GPT(Decoder):
    """GPT-2 and the larger models that keep its block."""

    def build_block(self, attention: str) -> Block:
        """LayerNorm, attention with biases, LayerNorm, GELU MLP."""
        attn = Attention(self.config, attention, bias=True)
        return Block(self.build_norm(), attn, self.build_norm(), GeluMlp(self.config))

    def build_norm(self) -> nn.Module:
        """LayerNorm with scale and bias."""
        return nn.LayerNorm(self.config.d_model, eps=self.config.norm_eps)

    def residual_projections(self, block: Block) -> tuple[DrawnByDecoder, ...]:
        """The attention's output product and the MLP's second product."""
        mlp = block.mlp
        assert isinstance(mlp, GeluMlp)
        return block.attn.out, mlp.down

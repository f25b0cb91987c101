"""Llama's block: RMSNorm, SwiGLU, RoPE, grouped queries, no biases (Touvron et al. 2023)."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from suite.models.attention import Attention
from suite.models.decoder import Block, Decoder
from suite.models.layers import DrawnByDecoder, Linear


class SwiGLU(nn.Module):
    """``silu(gate) * up`` of a fused ``[gate, up]`` (Shazeer 2020, arXiv:2002.05202)."""

    def forward(self, gate_up: Tensor) -> Tensor:
        """(..., 2 d_ff) to (..., d_ff)."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up


class SwigluMlp(nn.Module):
    """``down(swiglu(gate_up(x)))``: the gate and up products are one matrix product."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_up = Linear(d_model, 2 * d_ff, bias=False)
        self.act = SwiGLU()
        self.down = Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(b, s, d_model) to the same shape."""
        return self.project(x)

    def project(self, x: Tensor) -> Tensor:
        """Token by token. Policies that tile the MLP replace this on the instance."""
        out: Tensor = self.down(self.act(self.gate_up(x)))
        return out


class Llama(Decoder):
    """Llama 2 (arXiv:2307.09288) and Llama 3 (arXiv:2407.21783)."""

    def build_block(self, attention: str) -> Block:
        """RMSNorm, attention without biases, RMSNorm, SwiGLU MLP."""
        attn = Attention(self.config, attention, bias=False)
        mlp = SwigluMlp(self.config.d_model, self.config.d_ff)
        return Block(self.build_norm(), attn, self.build_norm(), mlp)

    def build_norm(self) -> nn.Module:
        """RMSNorm with a scale."""
        return nn.RMSNorm(self.config.d_model, eps=self.config.norm_eps)

    def residual_projections(self, block: Block) -> tuple[DrawnByDecoder, ...]:
        """The attention's output product and the MLP's second product."""
        mlp = block.mlp
        assert isinstance(mlp, SwigluMlp)
        return block.attn.out, mlp.down

"""Llama's block with a mixture of experts for an MLP (Jiang et al. 2024, arXiv:2401.04088).

With ``n_shared_experts`` a dense MLP runs beside the routed ones (Dai et al. 2024, arXiv:2401.06066).
"""

import torch
from torch import Tensor, nn

from suite.config.schema import ModelConfig
from suite.models.attention import Attention
from suite.models.decoder import Block
from suite.models.expert_mm import expert_mm
from suite.models.layers import DrawnByDecoder
from suite.models.llama import Llama, SwiGLU, SwigluMlp
from suite.models.routing import Router, combine, dispatch, sort_by_expert


class ExpertLinear(nn.Module, DrawnByDecoder):
    """One linear layer per expert, without biases; ``weight`` is (experts, in, out)."""

    def __init__(self, n_experts: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_experts, in_features, out_features))

    def forward(self, rows: Tensor, offsets: Tensor) -> Tensor:
        """(rows, in), sorted by expert, to (rows, out); ``offsets`` as in :func:`expert_mm`."""
        return expert_mm(rows, self.weight, offsets)


class Experts(nn.Module):
    """A SwiGLU MLP per expert, each of width ``d_ff``."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up = ExpertLinear(config.n_experts, config.d_model, 2 * config.d_ff)
        self.act = SwiGLU()
        self.down = ExpertLinear(config.n_experts, config.d_ff, config.d_model)

    def forward(self, rows: Tensor, offsets: Tensor) -> Tensor:
        """(rows, d_model), sorted by expert, to the same shape; ``offsets`` as in :func:`expert_mm`."""
        out: Tensor = self.down(self.act(self.gate_up(rows, offsets)), offsets)
        return out


class MoeMlp(nn.Module):
    """Routes each token to ``top_k`` experts and adds up what they return; no token is dropped.

    Attributes:
        router: chooses and weights.
        experts: all routed experts as one module.
        shared: a dense MLP for every token, ``n_shared_experts`` times as wide as an expert; None without.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_experts = config.n_experts
        self.router = Router(config)
        self.experts = Experts(config)
        shared = config.n_shared_experts
        self.shared = SwigluMlp(config.d_model, shared * config.d_ff) if shared else None

    def forward(self, x: Tensor) -> Tensor:
        """(b, s, d_model) to the same shape."""
        tokens = x.flatten(0, 1)
        weights, experts = self.router(tokens)
        assignments = sort_by_expert(experts, self.n_experts)
        rows = self.experts(dispatch(tokens, assignments), assignments.offsets)
        out = combine(rows, weights, assignments).view_as(x)
        # Last, so that a replay of the block ends before its second product.
        return out if self.shared is None else out + self.shared(x)


class Moe(Llama):
    """Mixtral and the mixtures of experts that keep its block."""

    def build_block(self, attention: str) -> Block:
        """RMSNorm, attention without biases, RMSNorm, mixture of experts."""
        attn = Attention(self.config, attention, bias=False)
        return Block(self.build_norm(), attn, self.build_norm(), MoeMlp(self.config))

    def residual_projections(self, block: Block) -> tuple[DrawnByDecoder, ...]:
        """The attention's output product and the second product of every expert."""
        mlp = block.mlp
        assert isinstance(mlp, MoeMlp)
        shared = () if mlp.shared is None else (mlp.shared.down,)
        return block.attn.out, mlp.experts.down, *shared

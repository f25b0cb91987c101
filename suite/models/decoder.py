"""The decoder that every family shares: embedding, trunk of pre-norm blocks, final norm, head."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from suite.config.schema import ModelConfig
from suite.models.attention import KERNELS, Attention, causal_mask
from suite.models.layers import DrawnByDecoder, Embedding, Linear
from suite.models.loss import next_token_loss
from suite.models.rope import rotation_tables
from suite.models.shape import FAMILIES, head_dim

_INIT_STD = 0.02


class BlockContext(NamedTuple):
    """What every block of one forward shares; computed once, never differentiated.

    Attributes:
        cos: RoPE cosines, float32, (1 or b, s, 1, head_dim / 2); None without RoPE.
        sin: RoPE sines, of the same shape.
        mask: True where a query may attend, (s, s) or (b, 1, s, s); None where the kernel itself is causal.
    """

    cos: Tensor | None
    sin: Tensor | None
    mask: Tensor | None


class Block(nn.Module):
    """Pre-norm residual block: ``x + attn(attn_norm(x))``, then ``x + mlp(mlp_norm(x))``."""

    def __init__(self, attn_norm: nn.Module, attn: Attention, mlp_norm: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.attn_norm = attn_norm
        self.attn = attn
        self.mlp_norm = mlp_norm
        self.mlp = mlp

    def forward(self, x: Tensor, context: BlockContext) -> Tensor:
        """(b, s, d_model) to the same shape."""
        x = x + self.attn(self.attn_norm(x), context.cos, context.sin, context.mask)
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class Decoder(nn.Module, ABC):
    """A decoder-only transformer. Families state their block and their norm.

    Attributes:
        embed: tokens, and positions where they are learned, to (b, s, d_model).
        blocks: the trunk.
        norm: final norm.
        head: (b, s, d_model) to logits; shares the token embedding's weight where the head is tied.
    """

    def __init__(self, config: ModelConfig, attention: str) -> None:
        super().__init__()
        self.config = config
        self._learned_positions = FAMILIES[config.family].learned_positions
        self._mask_always = KERNELS[attention].needs_mask
        self.embed = Embedding(
            config.vocab_size,
            config.d_model,
            n_positions=config.max_seq_len if self._learned_positions else 0,
            dropout=config.dropout,
        )
        self.blocks = nn.ModuleList(self.build_block(attention) for _ in range(config.n_layers))
        self.norm = self.build_norm()
        self.head = Linear(config.d_model, config.vocab_size, bias=False)
        if config.tied_head:
            self.head.weight = self.embed.token.weight
        self._init_weights()

    @abstractmethod
    def build_block(self, attention: str) -> Block:
        """One block of the trunk with the attention kernel of that name."""

    @abstractmethod
    def build_norm(self) -> nn.Module:
        """A norm over the last dimension, of size d_model."""

    @abstractmethod
    def residual_projections(self, block: Block) -> tuple[DrawnByDecoder, ...]:
        """The layers of ``block`` whose output is added to the residual stream."""

    def forward(self, tokens: Tensor, documents: Tensor | None = None) -> Tensor:
        """Next-token logits.

        Args:
            tokens: (b, s), int64.
            documents: (b, s), int64, equal within a document and contiguous. Attention stays inside
                documents and positions start again in each. None: each row is one document.

        Returns:
            (b, s, vocab_size), in the dtype of the head's product.
        """
        logits: Tensor = self.head(self.hidden(tokens, documents))
        return logits

    def hidden(self, tokens: Tensor, documents: Tensor | None = None) -> Tensor:
        """What the head reads, (b, s, d_model); arguments as in :meth:`forward`."""
        positions = positions_of(tokens, documents)
        x = self.embed(tokens, positions)
        x = self.run_blocks(x, self._context(tokens, positions, documents))
        out: Tensor = self.norm(x)
        return out

    def loss(
        self, tokens: Tensor, targets: Tensor, documents: Tensor | None, phase: Callable[[str], None]
    ) -> Tensor:
        """Mean next-token loss, float32. Policies that tile the head replace this method on the instance.

        Args:
            tokens: as in :meth:`forward`.
            targets: (b, s), int64, or :data:`~suite.models.loss.IGNORED`.
            documents: as in :meth:`forward`.
            phase: called with ``loss`` when the loss begins.
        """
        logits = self(tokens, documents)
        phase("loss")
        return next_token_loss(logits, targets)

    def run_blocks(self, x: Tensor, context: BlockContext) -> Tensor:
        """The trunk, block by block. Policies that span blocks replace this method on the instance."""
        for block in self.blocks:
            x = block(x, context)
        return x

    def _context(self, tokens: Tensor, positions: Tensor, documents: Tensor | None) -> BlockContext:
        cos = sin = mask = None
        if not self._learned_positions:
            cos, sin = rotation_tables(positions, head_dim(self.config), self.config.rope_theta)
        if documents is not None or self._mask_always:
            mask = causal_mask(tokens.shape[1], documents, tokens.device)
        return BlockContext(cos, sin, mask)

    def _init_weights(self) -> None:
        # GPT-2 (Radford et al. 2019, section 2.3): normal(0, 0.02), and the layers that write to the
        # residual stream scaled by 1/sqrt of the number of residual additions.
        writers: set[DrawnByDecoder] = set()
        for block in self.blocks:
            assert isinstance(block, Block)
            writers.update(self.residual_projections(block))
        scaled = _INIT_STD / math.sqrt(2 * len(self.blocks))
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
            if module is self.head and self.config.tied_head:
                continue  # the embedding's weight, drawn already
            if isinstance(module, DrawnByDecoder):
                nn.init.normal_(module.weight, std=scaled if module in writers else _INIT_STD)


def positions_of(tokens: Tensor, documents: Tensor | None) -> Tensor:
    """Position of each token in its document: (1, s), or (b, s) when there are ``documents``."""
    index = torch.arange(tokens.shape[1], device=tokens.device)[None]
    if documents is None:
        return index
    starts = torch.zeros_like(documents)
    changed = documents[:, 1:] != documents[:, :-1]
    starts[:, 1:] = torch.where(changed, index[:, 1:], 0)
    return index - starts.cummax(dim=1).values

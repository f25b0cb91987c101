"""Token-choice routing without capacity: who computes which token, and the loss that balances them.

No token is dropped and nothing is padded: every token has ``top_k`` assignments, whatever their spread
over the experts, so that all shapes are static (Gale et al. 2022, arXiv:2211.15841, "dropless").
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from suite.config.schema import ModelConfig
from suite.models.layers import Linear


class Assignments(NamedTuple):
    """The ``tokens * top_k`` assignments, sorted by expert.

    Attributes:
        order: (assignments,), int64: row in the sorted order to the assignment ``token * top_k + choice``.
        inverse: (assignments,), int64: assignment to its row.
        offsets: (experts,), int32: where each expert's rows end.
    """

    order: Tensor
    inverse: Tensor
    offsets: Tensor


class Router(nn.Module):
    """Scores every expert for every token and chooses the best ``top_k``.

    Attributes:
        gate: (d_model, n_experts), the product that scores.
        aux_loss: the balancing loss of the last forward times its coefficient, float32; None without one.
            It is no part of the model's loss: its gradient joins in backward, see :func:`add_aux_loss`.
            A replay writes the same value again.
    """

    aux_loss: Tensor | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.top_k = config.top_k
        self.aux_loss_coefficient = config.aux_loss
        self.gate = Linear(config.d_model, config.n_experts, bias=False)
        written = torch.zeros((), dtype=torch.float32) if config.aux_loss else None
        self.register_buffer("aux_loss", written, persistent=False)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Choose experts for ``tokens`` (n, d_model).

        Returns:
            Weights (n, top_k), float32, and the experts' indices (n, top_k), int64. The weights of a token
            sum to 1 (Jiang et al. 2024, arXiv:2401.04088, section 2.1); with ``top_k`` of 1 that would be
            a constant, and the weight is the probability itself (Fedus et al. 2021, arXiv:2101.03961).
        """
        probabilities = self.gate(tokens).softmax(dim=-1, dtype=torch.float32)
        weights, experts = probabilities.topk(self.top_k, dim=-1)
        if self.top_k > 1:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        if self.aux_loss is not None:
            loss = self.aux_loss_coefficient * load_balancing_loss(probabilities, experts)
            self.aux_loss.copy_(loss.detach())
            weights = add_aux_loss(weights, loss)
        return weights, experts


def load_balancing_loss(probabilities: Tensor, experts: Tensor) -> Tensor:
    """``n_experts * sum_e fraction_e * mean_probability_e``: 1 when tokens are spread evenly.

    Fedus et al. 2021, arXiv:2101.03961, equations 4 to 6; with more than one choice a token the fractions
    are of all assignments and sum to 1, as in Megatron-LM. Only the probabilities have a gradient.

    Args:
        probabilities: (n, n_experts), float32.
        experts: (n, top_k), the indices of the chosen experts.
    """
    chosen = torch.zeros_like(probabilities).scatter_(1, experts, 1.0)
    fractions = chosen.mean(dim=0) / experts.shape[1]
    return probabilities.shape[1] * (fractions * probabilities.mean(dim=0)).sum()


class _AuxLoss(torch.autograd.Function):
    @staticmethod
    def forward(weights: Tensor, loss: Tensor) -> Tensor:  # noqa: ARG004
        return weights.view_as(weights)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG004
        return grad, grad.new_ones((), dtype=torch.float32)


def add_aux_loss(weights: Tensor, loss: Tensor) -> Tensor:
    """``weights``, with which ``loss``, a float32 scalar, gets a gradient of 1 in backward.

    Megatron-LM's way. A list of losses that is added up at the end would grow again in every replay, and a
    region would have to return its own. The gradient is that of a model's loss which is not scaled.
    """
    out: Tensor = _AuxLoss.apply(weights, loss)  # type: ignore[no-untyped-call]
    return out


def sort_by_expert(experts: Tensor, n_experts: int) -> Assignments:
    """Sort the assignments by expert, those of one expert in the order of the tokens.

    Args:
        experts: (n, top_k), indices below ``n_experts``.
        n_experts: how many there are; those without a token end where the one before them ends.
    """
    chosen, order = experts.flatten().sort(stable=True)
    rows = torch.arange(order.shape[0], device=order.device)
    inverse = torch.empty_like(order).scatter_(0, order, rows)
    all_experts = torch.arange(n_experts, device=order.device)
    offsets = torch.searchsorted(chosen, all_experts, right=True, out_int32=True)
    return Assignments(order, inverse, offsets)


class _Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(tokens: Tensor, order: Tensor, inverse: Tensor, top_k: int) -> Tensor:  # noqa: ARG004
        return tokens.index_select(0, order // top_k)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, int], output: Any) -> None:  # noqa: ARG004
        _, _, inverse, ctx.top_k = inputs
        ctx.save_for_backward(inverse)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        by_token = grad.index_select(0, inverse).view(-1, ctx.top_k, grad.shape[1])
        return by_token.sum(dim=1), None, None, None


def dispatch(tokens: Tensor, assignments: Assignments) -> Tensor:
    """The tokens (n, d) in the order of ``assignments``, each ``top_k`` times: (n * top_k, d).

    Backward gathers a token's rows and adds them up. An index's own backward scatters: atomically, and in
    any order, on an accelerator.
    """
    top_k = assignments.order.shape[0] // tokens.shape[0]
    rows: Tensor = _Dispatch.apply(tokens, assignments.order, assignments.inverse, top_k)  # type: ignore[no-untyped-call]
    return rows


class _Unsort(torch.autograd.Function):
    @staticmethod
    def forward(rows: Tensor, order: Tensor, inverse: Tensor) -> Tensor:  # noqa: ARG004
        return rows.index_select(0, inverse)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Any) -> None:  # noqa: ARG004
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (order,) = ctx.saved_tensors
        return grad.index_select(0, order), None, None


def combine(rows: Tensor, weights: Tensor, assignments: Assignments) -> Tensor:
    """The weighted sum of each token's rows, in one order of addition.

    Args:
        rows: (n * top_k, d) in the order of ``assignments``.
        weights: (n, top_k), cast to the dtype of ``rows``.
        assignments: as for :func:`dispatch`.

    Returns:
        (n, d).
    """
    unsorted: Tensor = _Unsort.apply(rows, assignments.order, assignments.inverse)  # type: ignore[no-untyped-call]
    by_token = unsorted.view(*weights.shape, -1)
    return (by_token * weights.to(rows.dtype)[..., None]).sum(dim=1)

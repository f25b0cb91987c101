"""The mixture of experts: what it computes, that it drops nothing, and its balancing loss."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_cases import MOE, make_cell, make_model, make_tokens
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from suite.models import build_model
from suite.models.moe import MoeMlp
from suite.models.routing import combine, dispatch, load_balancing_loss, sort_by_expert


def make_mlp(dtype=torch.float64, seed=0, **changes):
    """One mixture with weights large enough for its choices to be clear."""
    torch.manual_seed(seed)
    mlp = MoeMlp(dataclasses.replace(MOE, **changes))
    for parameter in mlp.parameters():
        nn.init.normal_(parameter, std=0.5)
    return mlp.to(dtype)


def dense_reference(mlp, x):
    """Every token times every expert, masked; float64, and the probabilities."""
    tokens = x.flatten(0, 1)
    probabilities = (tokens @ mlp.router.gate.weight.T).softmax(-1)
    k = mlp.router.top_k
    threshold = probabilities.sort(descending=True).values[:, k - 1 : k]
    weights = torch.where(probabilities >= threshold, probabilities, 0.0)
    if k > 1:
        weights = weights / weights.sum(-1, keepdim=True)
    gate, up = torch.einsum("nd,edf->nef", tokens, mlp.experts.gate_up.weight).chunk(2, dim=-1)
    returned = torch.einsum("nef,efd->ned", gate * torch.sigmoid(gate) * up, mlp.experts.down.weight)
    out = (weights[..., None] * returned).sum(1).view_as(x)
    if mlp.shared is not None:
        gate, up = (x @ mlp.shared.gate_up.weight.T).chunk(2, dim=-1)
        out = out + (gate * torch.sigmoid(gate) * up) @ mlp.shared.down.weight.T
    return out, probabilities


@settings(max_examples=30, deadline=None)
@given(
    experts=st.integers(1, 6),
    top_k=st.integers(1, 6),
    shared=st.integers(0, 2),
    batch=st.integers(1, 3),
    length=st.integers(1, 9),
)
def test_output_and_gradients_are_those_of_the_dense_sum(experts, top_k, shared, batch, length):
    mlp = make_mlp(n_experts=experts, top_k=min(top_k, experts), n_shared_experts=shared, aux_loss=0.0)
    x = torch.randn(batch, length, MOE.d_model, dtype=torch.float64, requires_grad=True)
    out, (expected, _) = mlp(x), dense_reference(mlp, x)
    # The scores are float32.
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    wanted = (x, *mlp.parameters())
    grad = torch.randn_like(out)
    found = torch.autograd.grad(out, wanted, grad)
    for a, b in zip(found, torch.autograd.grad(expected, wanted, grad), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), experts=st.integers(1, 6), tokens=st.integers(1, 9))
def test_every_assignment_is_computed_once_and_by_its_expert(data, experts, tokens):
    top_k = data.draw(st.integers(1, experts))
    choices = st.permutations(range(experts)).map(lambda order: order[:top_k])
    chosen = torch.tensor([data.draw(choices) for _ in range(tokens)])
    order, inverse, offsets = assignments = sort_by_expert(chosen, experts)
    everything = torch.arange(tokens * top_k)
    assert torch.equal(order.sort().values, everything)
    assert torch.equal(order[inverse], everything)
    assert offsets.dtype == torch.int32
    start = 0
    for expert, end in enumerate(offsets.tolist()):
        rows = order[start:end]
        assert (chosen.flatten()[rows] == expert).all()
        assert torch.equal(rows, rows.sort().values)
        start = end
    assert start == tokens * top_k
    x = torch.randn(tokens, 3, dtype=torch.float64)
    weights = torch.full((tokens, top_k), 1 / top_k, dtype=torch.float64)
    torch.testing.assert_close(combine(dispatch(x, assignments), weights, assignments), x)


def test_gradients_of_the_permutations():
    chosen = torch.tensor([[0, 3], [3, 1], [0, 1]])
    assignments = sort_by_expert(chosen, 5)
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)

    def there_and_back(x, weights):
        return combine(dispatch(x, assignments).square(), weights, assignments)

    assert torch.autograd.gradcheck(there_and_back, (x, weights))
    assert torch.autograd.gradgradcheck(there_and_back, (x, weights))


@pytest.mark.parametrize("favourite", [0, 3])
def test_no_token_is_dropped_when_all_go_to_one_expert(favourite):
    mlp = make_mlp(top_k=1, n_shared_experts=0)
    with torch.no_grad():
        mlp.router.gate.weight.zero_()
        mlp.router.gate.weight[favourite] = 50.0
    x = torch.rand(2, 9, MOE.d_model, dtype=torch.float64) + 0.1
    out = mlp(x)
    torch.testing.assert_close(out, dense_reference(mlp, x)[0], rtol=1e-5, atol=1e-6)
    assert (out.abs().sum(-1) > 0).all()
    out.sum().backward()
    used = mlp.experts.down.weight.grad.abs().sum((1, 2)) > 0
    assert used.tolist() == [expert == favourite for expert in range(4)]


def test_two_runs_are_equal_to_the_bit():
    found = []
    for _ in range(2):
        model, tokens = make_model(MOE), make_tokens()
        model.loss(tokens, tokens, None, lambda _: None).backward()
        found.append([parameter.grad for parameter in model.parameters()])
    assert all(map(torch.equal, *found))


def test_fake_tensors_have_the_shapes_of_real_ones():
    def run():
        model = make_model(MOE)
        tokens = torch.zeros(2, 16, dtype=torch.long)
        logits = model(tokens)
        logits.sum().backward()
        return [(t.shape, t.dtype) for t in (logits, *(p.grad for p in model.parameters()))]

    with FakeTensorMode():
        fake = run()
    assert fake == run()


# Dynamo traces an autograd function by making an instance of it.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("regions", [False, True])
def test_compiles_as_one_graph(regions):
    model, tokens = make_model(MOE), make_tokens()
    if regions:
        for block in model.blocks:
            inner = block.forward
            block.forward = lambda *args, inner=inner: checkpoint(inner, *args, use_reentrant=False)
    expected = model(tokens)
    expected.sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    losses = [block.mlp.router.aux_loss.clone() for block in model.blocks]
    model.zero_grad()
    for block in model.blocks:
        block.mlp.router.aux_loss.zero_()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    out = compiled(tokens)
    out.sum().backward()
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], gradients)
    torch.testing.assert_close([block.mlp.router.aux_loss for block in model.blocks], losses)


@settings(max_examples=40, deadline=None)
@given(
    experts=st.integers(1, 6), top_k=st.integers(1, 6), tokens=st.integers(1, 20), seed=st.integers(0, 99)
)
def test_the_balancing_loss_is_its_formula(experts, top_k, tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    probabilities = torch.randn(tokens, experts, generator=generator).softmax(-1)
    chosen = probabilities.topk(min(top_k, experts)).indices
    counts = torch.bincount(chosen.flatten(), minlength=experts)
    expected = experts * sum(
        counts[e] / chosen.numel() * probabilities[:, e].mean() for e in range(experts)
    )
    loss = load_balancing_loss(probabilities, chosen)
    torch.testing.assert_close(loss, expected)
    if min(top_k, experts) == experts:  # as even as can be
        torch.testing.assert_close(loss, torch.ones(()))


def step(model, tokens):
    """Loss, and every gradient, of one step."""
    model.zero_grad()
    loss = model.loss(tokens, tokens, None, lambda _: None)
    loss.backward()
    return loss.detach(), [parameter.grad for parameter in model.parameters()]


def test_its_gradient_is_that_of_adding_it_to_the_loss():
    model, tokens = make_model(MOE, model_aux_loss=0.5), make_tokens()
    loss, gradients = step(model, tokens)
    plain = make_model(MOE, model_aux_loss=0.0)
    assert plain.blocks[0].mlp.router.aux_loss is None
    auxiliary = []
    for block in plain.blocks:
        block.mlp.router.gate.register_forward_hook(
            lambda _, __, scores: auxiliary.append(
                0.5 * load_balancing_loss(scores.softmax(-1), scores.topk(MOE.top_k).indices)
            )
        )
    plain_loss = plain.loss(tokens, tokens, None, lambda _: None)
    (plain_loss + sum(auxiliary)).backward()
    assert torch.equal(loss, plain_loss.detach())
    for found, parameter in zip(gradients, plain.parameters(), strict=True):
        torch.testing.assert_close(found, parameter.grad, rtol=1e-5, atol=1e-6)
    for block, added in zip(model.blocks, auxiliary, strict=True):
        torch.testing.assert_close(block.mlp.router.aux_loss, added.detach())
    without = step(make_model(MOE, model_aux_loss=0.0), tokens)[1]
    assert not all(map(torch.equal, gradients, without))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("part", ["", "mlp", "mlp.router"])
def test_a_replay_adds_it_once(part, reentrant):
    model, tokens = make_model(MOE, model_aux_loss=0.5), make_tokens()
    loss, gradients = step(model, tokens)
    written = [block.mlp.router.aux_loss.clone() for block in model.blocks]
    for block in model.blocks:
        module = block.get_submodule(part)
        inner = module.forward
        module.forward = lambda *args, inner=inner: checkpoint(inner, *args, use_reentrant=reentrant)
    again_loss, again = step(model, tokens)
    assert torch.equal(loss, again_loss)
    assert all(map(torch.equal, gradients, again))
    assert all(torch.equal(a, b.mlp.router.aux_loss) for a, b in zip(written, model.blocks, strict=True))


def test_the_balancing_loss_balances():
    """Training on it alone spreads the tokens: it goes from almost all on two experts to its least, 1."""
    mlp = make_mlp(dtype=torch.float32, aux_loss=1.0, n_shared_experts=0)
    with torch.no_grad():
        mlp.router.gate.weight[2:] -= 0.1
    x = torch.randn(4, 32, MOE.d_model).abs()
    optimizer = torch.optim.SGD(mlp.router.parameters(), lr=0.1)
    losses = []
    for _ in range(60):
        (mlp(x) * 0).sum().backward()
        losses.append(mlp.router.aux_loss.item())
        optimizer.step()
        optimizer.zero_grad()
    assert losses[0] > 1.5
    assert losses[-1] < 1.1


def test_router_scores_are_float32_whatever_the_model():
    with torch.no_grad():
        mlp = make_mlp(dtype=torch.float32).bfloat16()
        weights, experts = mlp.router(torch.randn(5, MOE.d_model, dtype=torch.bfloat16))
    assert (weights.dtype, experts.dtype) == (torch.float32, torch.int64)
    torch.testing.assert_close(weights.sum(-1), torch.ones(5))


def test_the_state_dict_holds_weights_only_and_the_written_loss_is_float32():
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = build_model(make_cell(MOE))
    finally:
        torch.set_default_dtype(torch.float32)
    assert model.state_dict().keys() == dict(model.named_parameters()).keys()
    assert {buffer.dtype for buffer in model.buffers()} == {torch.float32}
    assert len(list(model.buffers())) == MOE.n_layers

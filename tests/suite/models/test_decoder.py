"""The families against a plain reading of their papers, and the properties every decoder has."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from model_cases import FAMILIES, GPT, LLAMA, make_cell, make_model, make_tokens

from suite.config.schema import ATTENTIONS
from suite.models import build_model
from suite.models.decoder import positions_of

# How a product sums may depend on how many rows it has: in a mixture, on where all the others go.
SAME = {"gpt": 0.0, "llama": 0.0, "moe": 1e-5}


def reference_logits(model, tokens):
    """Logits of one row, token by token and head by head, in float64, from the state dict alone."""
    config = model.config
    state = {name: value.double() for name, value in model.state_dict().items()}
    width = config.d_model // config.n_heads
    group = config.n_heads // config.n_kv_heads

    def norm(x, name):
        if config.family != "gpt":
            scale = (x.square().mean(-1, keepdim=True) + config.norm_eps).rsqrt()
            return x * scale * state[f"{name}.weight"]
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + config.norm_eps).rsqrt()
        return centred * scale * state[f"{name}.weight"] + state[f"{name}.bias"]

    def linear(x, name):
        return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0)

    def swiglu(x, gate_up, down):
        gate, up = (x @ gate_up).chunk(2, dim=-1)
        return (gate * torch.sigmoid(gate) * up) @ down

    def mlp(x, name):
        if config.family == "gpt":
            up = linear(x, f"{name}.up")
            act = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
            return linear(act, f"{name}.down")
        dense = name if config.family == "llama" else f"{name}.shared"
        out = swiglu(x, state[f"{dense}.gate_up.weight"].T, state[f"{dense}.down.weight"].T)
        if config.family == "llama":
            return out
        for position, token in enumerate(x):
            scores = torch.softmax(linear(token, f"{name}.router.gate"), dim=0)
            best = scores.argsort(descending=True)[: config.top_k]
            for expert in best:
                gate_up, down = (
                    state[f"{name}.experts.{part}.weight"][expert] for part in ("gate_up", "down")
                )
                out[position] += scores[expert] / scores[best].sum() * swiglu(token, gate_up, down)
        return out

    def turn(vector, position):
        pairs = torch.complex(vector[: width // 2], vector[width // 2 :])
        angles = torch.tensor(
            [position * config.rope_theta ** (-2 * i / width) for i in range(width // 2)],
            dtype=torch.float64,
        )
        turned = pairs * torch.polar(torch.ones_like(angles), angles)
        return torch.cat((turned.real, turned.imag))

    x = state["embed.token.weight"][tokens]
    if config.family == "gpt":
        x = x + state["embed.position.weight"][: len(tokens)]
    for index in range(config.n_layers):
        block = f"blocks.{index}"
        heads = linear(norm(x, f"{block}.attn_norm"), f"{block}.attn.qkv").view(len(tokens), -1, width)
        q, k, v = heads.split((config.n_heads, config.n_kv_heads, config.n_kv_heads), dim=1)
        mixed = torch.zeros(len(tokens), config.n_heads, width, dtype=torch.float64)
        for head in range(config.n_heads):
            for query in range(len(tokens)):
                keys = k[: query + 1, head // group]
                asked = q[query, head]
                if config.family != "gpt":
                    keys = torch.stack([turn(key, p) for p, key in enumerate(keys)])
                    asked = turn(asked, query)
                weights = torch.softmax(keys @ asked / math.sqrt(width), dim=0)
                mixed[query, head] = weights @ v[: query + 1, head // group]
        x = x + linear(mixed.flatten(1), f"{block}.attn.out")
        x = x + mlp(norm(x, f"{block}.mlp_norm"), f"{block}.mlp")
    return norm(x, "norm") @ state["head.weight"].T


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [False, True])
def test_forward_is_the_published_computation(family, attention, tied):
    model = make_model(FAMILIES[family], attention=attention, model_tied_head=tied)
    tokens = make_tokens(batch=2, length=9)
    expected = torch.stack([reference_logits(model, row) for row in tokens])
    torch.testing.assert_close(model(tokens).double(), expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_token_changes_no_earlier_logits(family, attention):
    model = make_model(FAMILIES[family], attention=attention)
    tokens = make_tokens()
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % GPT.vocab_size
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :7], after[:, :7], rtol=0, atol=SAME[family])
    assert (before[:, 7:] != after[:, 7:]).any(-1).all()


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_packed_document_is_as_if_it_were_alone(family, attention):
    model = make_model(FAMILIES[family], attention=attention)
    tokens = make_tokens(length=16)
    lengths = [[5, 1, 10], [7, 9]]
    documents = torch.stack(
        [torch.cat([torch.full((n,), i) for i, n in enumerate(row)]) for row in lengths]
    )
    packed = model(tokens, documents)
    for row, sizes in enumerate(lengths):
        alone = [model(part[None])[0] for part in tokens[row].split(sizes)]
        torch.testing.assert_close(packed[row], torch.cat(alone), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_another_document_never_changes_the_logits(family, attention):
    model = make_model(FAMILIES[family], attention=attention)
    tokens = make_tokens(length=16)
    documents = torch.arange(16).ge(6).long().expand(2, 16)
    changed = tokens.clone()
    changed[:, :6] = (changed[:, :6] + 1) % GPT.vocab_size
    before, after = model(tokens, documents), model(changed, documents)
    torch.testing.assert_close(before[:, 6:], after[:, 6:], rtol=0, atol=SAME[family])
    assert (before[:, :6] != after[:, :6]).any()


def test_positions_start_again_in_each_document():
    documents = torch.tensor([[0, 0, 0, 1, 1, 2], [4, 5, 5, 5, 5, 5]])
    positions = positions_of(documents, documents)
    assert positions.tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 1, 2, 3, 4]]
    assert positions_of(documents, None).tolist() == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("family", FAMILIES)
def test_structure_that_policies_rely_on(family):
    model = make_model(FAMILIES[family])
    names = {name for name, _ in model.blocks[0].named_modules()}
    parts = {
        "gpt": {"mlp.up", "mlp.act", "mlp.down"},
        "llama": {"mlp.gate_up", "mlp.act", "mlp.down"},
        "moe": {
            "mlp.router",
            *(f"mlp.{mlp}.{part}" for mlp in ("experts", "shared") for part in ("gate_up", "act", "down")),
        },
    }
    assert names >= {"attn_norm", "attn", "attn.qkv", "attn.core", "attn.out", "mlp_norm", "mlp"}
    assert names >= parts[family]
    assert [name for name, _ in model.named_children()] == ["embed", "blocks", "norm", "head"]


def test_run_blocks_can_be_replaced_on_the_instance():
    model = make_model(LLAMA)
    tokens = make_tokens()
    seen = []
    inner = model.run_blocks

    def run_blocks(x, context):
        seen.append((tuple(x.shape), tuple(context.cos.shape), context.mask))
        return inner(x, context)

    expected = model(tokens)
    model.run_blocks = run_blocks
    assert torch.equal(model(tokens), expected)
    assert seen == [((2, 16, 24), (1, 16, 1, 2), None)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tied_head_is_the_embedding(family):
    tied = make_model(FAMILIES[family], model_tied_head=True)
    assert tied.head.weight is tied.embed.token.weight
    loose = make_model(FAMILIES[family])
    assert loose.head.weight is not loose.embed.token.weight
    F.cross_entropy(tied(make_tokens())[0], make_tokens()[0]).backward()
    assert tied.head.weight.grad is tied.embed.token.weight.grad


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_initial_weights(family, tied):
    cell = make_cell(FAMILIES[family], model_d_model=96, model_n_layers=8, model_tied_head=tied)
    torch.manual_seed(3)
    first = build_model(cell)
    torch.manual_seed(3)
    second = build_model(cell)
    for (name, a), (_, b) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        assert torch.equal(a, b), name
        if name.endswith("bias"):
            assert not a.any(), name
        elif "norm" in name:
            assert (a == 1).all(), name
        else:
            scaled = name.endswith(("attn.out.weight", "down.weight"))
            std = 0.02 / math.sqrt(16) if scaled else 0.02
            assert a.std().item() == pytest.approx(std, rel=0.1), name


def test_dtype_and_device_are_the_callers():
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            model = build_model(make_cell(LLAMA))
    finally:
        torch.set_default_dtype(torch.float32)
    assert {(p.dtype, p.device.type) for p in model.parameters()} == {(torch.bfloat16, "meta")}


def test_dropout_acts_in_training_only_and_follows_the_seed():
    model = make_model(GPT, model_dropout=0.3)
    plain = make_model(GPT)
    tokens = make_tokens()
    torch.manual_seed(5)
    first = model(tokens)
    torch.manual_seed(5)
    assert torch.equal(model(tokens), first)
    assert not torch.equal(model(tokens), first)
    torch.testing.assert_close(model.eval()(tokens), plain(tokens), rtol=0, atol=0)

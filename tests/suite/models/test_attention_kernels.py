"""Each kernel against sums written out, over any grouping and length."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_cases import GPT, LLAMA, make_model
from torch.utils._python_dispatch import TorchDispatchMode

from suite.config.schema import ATTENTIONS
from suite.models.attention import KERNELS, causal_mask


def written_out(q, k, v, documents=None):
    """Causal attention by loops, float64: q (b, h, s, d), k and v (b, kv, s, d)."""
    b, h, s, d = q.shape
    out = torch.zeros(b, h, s, d, dtype=torch.float64)
    for row in range(b):
        for head in range(h):
            source = head * k.shape[1] // h
            for query in range(s):
                keys = [
                    key
                    for key in range(query + 1)
                    if documents is None or documents[row, key] == documents[row, query]
                ]
                scores = (k[row, source, keys].double() @ q[row, head, query].double()) / math.sqrt(d)
                out[row, head, query] = torch.softmax(scores, 0) @ v[row, source, keys].double()
    return out.transpose(1, 2).flatten(2)


def mask_for(kernel, s, documents):
    needed = kernel.needs_mask or documents is not None
    return causal_mask(s, documents, torch.device("cpu")) if needed else None


@settings(max_examples=40, deadline=None)
@given(
    kv=st.integers(1, 3),
    group=st.integers(1, 4),
    s=st.integers(1, 11),
    d=st.integers(1, 9),
    packed=st.booleans(),
    name=st.sampled_from(ATTENTIONS),
)
def test_kernels_are_causal_attention(kv, group, s, d, packed, name):
    generator = torch.Generator().manual_seed(kv * 1000 + group * 100 + s)
    # (b, s, heads, d) transposed, as the blocks pass them.
    q = torch.randn(2, s, kv * group, d, generator=generator).transpose(1, 2)
    k, v = (torch.randn(2, s, kv, d, generator=generator).transpose(1, 2) for _ in range(2))
    documents = torch.arange(s).div(3, rounding_mode="floor").expand(2, s) if packed else None
    kernel = KERNELS[name](0.0)
    out = kernel(q, k, v, mask_for(kernel, s, documents))
    torch.testing.assert_close(out.double(), written_out(q, k, v, documents), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kv", [1, 2, 6])
def test_kernels_have_the_same_gradients(kv, packed):
    documents = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2]]) if packed else None
    gradients = {}
    for name in ATTENTIONS:
        generator = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(1, n, 8, 4, generator=generator).requires_grad_() for n in (6, kv, kv))
        kernel = KERNELS[name](0.0)
        kernel(q, k, v, mask_for(kernel, 8, documents)).square().sum().backward()
        gradients[name] = (q.grad, k.grad, v.grad)
    for name in ("sdpa", "flash"):
        torch.testing.assert_close(gradients[name], gradients["eager"], rtol=1e-4, atol=1e-5)


class Operators(TorchDispatchMode):
    """Names and output sizes of the operators that run."""

    def __init__(self):
        super().__init__()
        self.ran = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.ran.append(func.name().removeprefix("aten::").split(".")[0])
        return out


@pytest.mark.parametrize("name", ["sdpa", "flash"])
@pytest.mark.parametrize("packed", [False, True])
def test_fused_kernels_are_one_operator_without_copies_of_keys(name, packed):
    # (b, s, heads, d) transposed, as the blocks pass them.
    q, k, v = (torch.randn(1, 8, n, 4).transpose(1, 2) for n in (6, 2, 2))
    documents = torch.zeros(1, 8, dtype=torch.long) if packed else None
    kernel = KERNELS[name](0.0)
    mask = mask_for(kernel, 8, documents)
    with Operators() as operators:
        kernel(q, k, v, mask)
    copies = {"clone", "repeat_interleave", "_to_copy", "expand", "copy_", "bmm"}
    assert "_scaled_dot_product_flash_attention_for_cpu" in operators.ran
    assert not copies & set(operators.ran)


def test_flash_with_dropout_on_the_cpu_fails_rather_than_fall_back():
    kernel = KERNELS["flash"](0.5)
    q = torch.randn(1, 2, 4, 4)
    reasons = "kernel not used because|do not support non-zero dropout"
    with pytest.warns(match=reasons), pytest.raises(RuntimeError, match="No available kernel"):
        kernel(q, q, q, None)


@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_dropout_scales_what_it_keeps(name):
    s = 64
    kernel = KERNELS[name](0.5)
    # Equal keys: weights are 1/(t+1), and each one is either dropped or doubled.
    q, v = torch.zeros(1, 1, s, 1), torch.ones(1, 1, s, 1)
    torch.manual_seed(0)
    out = kernel(q, q, v, mask_for(kernel, s, None)).flatten()
    kept = out * torch.arange(1, s + 1) / 2
    torch.testing.assert_close(kept, kept.round(), rtol=0, atol=1e-3)
    assert 0.3 < (kept / torch.arange(1, s + 1))[s // 2 :].mean() < 0.7
    torch.testing.assert_close(kernel.eval()(q, q, v, mask_for(kernel, s, None)), v[:, 0])


def saved_bytes(module, *args):
    """Bytes that a forward keeps for backward, by storage, parameters and rotation tables left out."""
    tables = {a.untyped_storage()._cdata for a in args[1:] if a is not None}
    known = {p.untyped_storage()._cdata for p in module.parameters()} | tables
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = module(*args)
    assert out.requires_grad
    return sum(storage.nbytes() for storage in kept.values())


def test_a_llama_block_keeps_what_the_formula_says():
    """u[1 + r(1 + 2k) + r] + LSE in attention and u[1 + 4f] in the MLP, with u = 4bsh in float32."""
    model = make_model(LLAMA)
    b, s, config = 2, 16, LLAMA
    u = 4 * b * s * config.d_model
    x = torch.randn(b, s, config.d_model, requires_grad=True)
    block = model.blocks[0]
    context = model._context(torch.zeros(b, s, dtype=torch.long), torch.arange(s)[None], None)
    keys = u * config.n_kv_heads // config.n_heads
    lse = 4 * config.n_heads * b * s
    assert saved_bytes(block.attn, x, *context) == u + (u + 2 * keys) + u + lse
    assert saved_bytes(block.mlp, x) == u + 4 * 4 * b * s * config.d_ff


def test_a_gpt_block_keeps_what_the_formula_says():
    """u[1 + 3 + 1] + LSE in fused attention and u[1 + 2f] in the GELU MLP."""
    model = make_model(GPT)
    b, s, config = 2, 16, GPT
    u = 4 * b * s * config.d_model
    x = torch.randn(b, s, config.d_model, requires_grad=True)
    block = model.blocks[0]
    assert saved_bytes(block.attn, x, None, None, None) == 5 * u + 4 * config.n_heads * b * s
    assert saved_bytes(block.mlp, x) == u + 2 * 4 * b * s * config.d_ff


def test_eager_attention_keeps_one_matrix_of_weights():
    """u[1 + 3 + 1] and the softmax's b h s^2 in eager attention without dropout; the mask is shared."""
    model = make_model(GPT, attention="eager")
    b, s, config = 2, 16, GPT
    u = 4 * b * s * config.d_model
    x = torch.randn(b, s, config.d_model, requires_grad=True)
    mask = causal_mask(s, None, torch.device("cpu"))
    weights = 4 * b * config.n_heads * s * s
    assert saved_bytes(model.blocks[0].attn, x, None, None, mask) == 5 * u + weights

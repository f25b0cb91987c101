"""The loss is float32 over the targets that count; precision decides where bfloat16 is used."""

import math

import pytest
import torch
from training_cases import packed, seeded_model, workload

from suite.config.schema import PRECISIONS
from suite.models.decoder import Decoder
from suite.models.loss import IGNORED
from suite.training.data import Batch, batches
from suite.training.precision import PRECISION
from suite.training.step import model_loss


class Fixed(torch.nn.Module):
    """Gives the same logits to every token."""

    loss = Decoder.loss

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(logits)

    def forward(self, tokens, documents):
        return self.logits.expand(*tokens.shape, -1)


def test_loss_is_the_mean_over_targets_that_count():
    model = Fixed(torch.tensor([0.0, math.log(3.0)]))
    targets = torch.tensor([[0, 1, IGNORED], [1, IGNORED, IGNORED]])
    phases = []
    loss = model_loss(model, Batch(torch.zeros_like(targets), targets, None), phases.append)
    expected = -(math.log(0.25) + 2 * math.log(0.75)) / 3
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert phases == ["forward", "loss"]


def test_loss_of_bfloat16_logits_is_float32():
    logits = torch.linspace(-3, 3, 7, dtype=torch.bfloat16)
    targets = torch.tensor([[2]])
    loss = model_loss(Fixed(logits), Batch(targets, targets, None), lambda phase: None)
    assert loss.dtype == torch.float32
    expected = torch.logsumexp(logits.double(), 0) - logits[2].double()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_fresh_model_is_at_the_entropy_of_its_vocabulary():
    config = workload(data=packed(mean_length=4))
    loss = model_loss(seeded_model(config), next(batches(config)), lambda phase: None)
    assert loss.item() == pytest.approx(math.log(config.model.vocab_size), rel=0.02)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_dtypes_of_parameters_products_and_gradients(precision):
    config = workload(precision=precision)
    model = seeded_model(config)
    seen = {}
    qkv = model.blocks[0].attn.qkv
    qkv.register_forward_hook(lambda module, args, out: seen.update(product=out.dtype))
    with PRECISION[precision].autocast("cpu"):
        loss = model_loss(model, next(batches(config)), lambda phase: None)
    loss.backward()
    expected = {
        "fp32": (torch.float32, torch.float32),
        "bf16-mixed": (torch.float32, torch.bfloat16),
        "bf16-true": (torch.bfloat16, torch.bfloat16),
    }
    assert {p.grad.dtype for p in model.parameters()} == {expected[precision][0]}
    assert seen["product"] == expected[precision][1]
    assert loss.dtype == torch.float32

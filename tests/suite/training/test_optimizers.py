"""Every implementation of an optimizer is that implementation, and does the same."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from training_cases import seeded_model, workload

from suite.config.schema import OptimizerConfig
from suite.training.check import OPTIMIZER_IMPLS, OPTIMIZER_KINDS
from suite.training.data import batches
from suite.training.optimizers import build_optimizer
from suite.training.step import model_loss


def trained(kind, impl):
    config = workload(optimizer=OptimizerConfig(kind=kind, impl=impl, lr=0.02))
    model = seeded_model(config)
    optimizer = build_optimizer(model.parameters(), config.optimizer)
    for _, batch in zip(range(3), batches(config), strict=False):
        model_loss(model, batch, lambda phase: None).backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer, dict(model.named_parameters())


@pytest.mark.parametrize("kind", OPTIMIZER_KINDS)
def test_implementations_agree(kind):
    start = dict(seeded_model(workload()).named_parameters())
    _, expected = trained(kind, "forloop")
    assert all(not torch.equal(expected[name], start[name]) for name in start)
    for impl in ("foreach", "fused"):
        _, parameters = trained(kind, impl)
        for name, parameter in parameters.items():
            torch.testing.assert_close(parameter, expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", OPTIMIZER_KINDS)
@pytest.mark.parametrize("impl", OPTIMIZER_IMPLS)
def test_the_implementation_asked_for_is_the_one_that_runs(kind, impl):
    optimizer, parameters = trained(kind, impl)
    for parameter in parameters.values():
        parameter.grad = torch.ones_like(parameter)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        optimizer.step()
    operators = {event.key for event in seen.key_averages()}
    fused = any("_fused_" in name for name in operators)
    multi = any("_foreach_" in name and name != "aten::_foreach_add_" for name in operators)
    assert fused == (impl == "fused")
    assert multi == (impl == "foreach")


def test_hyperparameters_arrive():
    config = OptimizerConfig(kind="sgd", lr=0.25, weight_decay=0.5, momentum=0.75)
    group = build_optimizer([torch.nn.Parameter(torch.ones(1))], config).param_groups[0]
    assert (group["lr"], group["weight_decay"], group["momentum"]) == (0.25, 0.5, 0.75)
    group = build_optimizer(
        [torch.nn.Parameter(torch.ones(1))], OptimizerConfig(lr=0.25, weight_decay=0.5)
    ).param_groups[0]
    assert (group["lr"], group["weight_decay"]) == (0.25, 0.5)

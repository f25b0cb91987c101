"""discard and rebuild: what is dropped, that no product runs again, and how rebuilt tensors are let go."""

from typing import Any

import pytest
import torch
from make_cell import make_cell, make_session
from torch import nn

from suite.errors import MatchedNothing
from suite.measure import measure
from suite.measure.setup import build_subject
from suite.policies import make_policy, parse_policy
from suite.policies.entries import Entry
from suite.policies.lazy import LazyBlock
from suite.policies.regions import checkpoint_deferred

SESSION = make_session()
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_dot_product_flash_attention_for_cpu")
NO_PRODUCT = [
    {"family": "discard", "targets": ["norm", "act"]},
    {"family": "rebuild", "targets": ["norm", "act"]},
]


def replayed(policy: dict[str, Any], model: str = "llama_nano", **workload: Any) -> dict[str, set[str]]:
    """Place to the operators that ran again there."""
    found = measure(make_cell(model, policy, **workload), "flops", 0, SESSION)
    places: dict[str, set[str]] = {}
    for row in found.detail["work"]:
        if row["replay_calls"]:
            places.setdefault(row["place"], set()).add(row["operator"])
    return places


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("model", ["llama_nano", "gpt_nano"])
@pytest.mark.parametrize("policy", NO_PRODUCT, ids=lambda p: p["family"])
def test_norms_and_activations_are_rebuilt_without_any_product(
    policy: dict[str, Any], model: str, attention: str
) -> None:
    places = replayed(policy, model, attention=attention, model_dropout=0.0)
    assert places.keys() >= {"blocks.*.attn_norm", "blocks.*.mlp_norm", "blocks.*.mlp.act"}
    assert not {operator for ran in places.values() for operator in ran} & set(PRODUCTS)


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "bf16-true"])
def test_the_two_keep_the_same_bytes_but_for_autocast_s_copies_of_weights(precision: str) -> None:
    saved = [
        measure(make_cell(policy=p, precision=precision), "memory", 0, SESSION).figures["saved_bytes"]
        for p in NO_PRODUCT
    ]
    none = measure(make_cell(precision=precision), "memory", 0, SESSION).figures["saved_bytes"]
    # Autocast's copy of a weight is made inside the region of discard, and kept beside it under rebuild.
    model = make_cell().config.model
    elements = model.d_model * (2 * model.d_model + 2 * model.d_ff + model.d_ff)  # qkv, gate and up, down
    copies = 2 * model.n_layers * elements if precision == "bf16-mixed" else 0
    assert saved[0] + copies == saved[1] < none


def test_core_attention_runs_again_and_its_product_does_not() -> None:
    places = replayed({"family": "discard", "targets": ["core_attn"]})
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in places["blocks.*.attn.core"]
    assert "blocks.*.attn.out" not in places


@pytest.mark.parametrize("target", ["norm", "act", "core_attn"])
def test_hits_are_the_regions_of_each_target(target: str) -> None:
    found = measure(make_cell(policy={"family": "discard", "targets": [target]}), "memory", 0, SESSION)
    (entry,) = found.detail["entries"]
    assert entry["hits"] == {"norm": 8, "act": 4, "core_attn": 4}[target]
    assert found.figures["regions_count"] == entry["hits"]


class Doubled(nn.Module):
    """Keeps a tensor of its inside, and counts its forwards."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))
        self.forwards = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.forwards += 1
        return (x * self.weight).exp()


class Pair(nn.Module):
    """A producer that two readers share."""

    def __init__(self) -> None:
        super().__init__()
        self.producer = Doubled()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.producer(x)
        return self.first(made) * self.second(made)


def run(model: nn.Module, *, backward: int = 1) -> list[torch.Tensor]:
    x = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()
    out = model(x).sum()
    for again in range(backward):
        out.backward(retain_graph=again + 1 < backward)
    return [x.grad, *(p.grad for p in model.parameters())]


def test_one_rebuild_is_shared_by_all_readers() -> None:
    torch.manual_seed(0)
    model = Pair()
    expected = run(model)
    model.zero_grad()
    entry = Entry("norm")
    LazyBlock(model).produce(model.producer, entry, draws=False, cast=False)
    model.producer.forwards = 0
    found = run(model)
    assert model.producer.forwards == 2
    assert entry.hits == 3  # exp's own result, and the input of both readers
    assert all(map(torch.equal, found, expected))


def test_a_second_backward_over_the_same_graph_rebuilds_again() -> None:
    torch.manual_seed(0)
    model = Pair()
    expected = run(model, backward=2)
    model.zero_grad()
    LazyBlock(model).produce(model.producer, Entry("norm"), draws=False, cast=False)
    found = run(model, backward=2)
    assert all(map(torch.equal, found, expected))


def test_without_gradients_nothing_is_remembered() -> None:
    model = Pair()
    entry = Entry("norm")
    LazyBlock(model).produce(model.producer, entry, draws=False, cast=False)
    with torch.no_grad():
        model(torch.ones(3, 4))
    assert entry.hits == 0


def test_rebuilt_randomness_is_that_of_the_forward() -> None:
    class Noisy(Doubled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.dropout(super().forward(x), 0.5, train=True)

    gradients = []
    for lazy in (False, True):
        torch.manual_seed(0)
        model = Pair()
        model.producer = Noisy()
        if lazy:
            LazyBlock(model).produce(model.producer, Entry("core"), draws=True, cast=False)
        torch.manual_seed(1)
        gradients.append(run(model))
        after = torch.rand(1)
        gradients[-1].append(after)
    assert all(map(torch.equal, *gradients))


def test_a_deferred_producer_runs_inside_its_reader_s_region() -> None:
    model = nn.Sequential(Doubled(), nn.Linear(4, 4))
    entry = Entry("norm")
    expected = run(model)
    model.zero_grad()
    checkpoint_deferred(model[0], model[1], entry, use_reentrant=False)
    model[0].forwards = 0
    found = run(model)
    assert all(map(torch.equal, found, expected))
    assert (entry.hits, model[0].forwards) == (1, 2)


def test_a_block_without_the_parts_is_refused_with_what_it_has() -> None:
    for family in ("discard", "rebuild"):
        subject = build_subject(make_cell().config, instrumented=False)
        del subject.model.blocks[1].mlp.act
        policy = make_policy(parse_policy({"family": family, "targets": ["act"]}))
        with pytest.raises(MatchedNothing, match=r"policy.targets=act: block 1 has none.*mlp\.gate_up"):
            policy.apply(subject.model, range(4))

"""Batches: the same for the same seed, the right targets, documents as their distribution says."""

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training_cases import packed, workload

from suite.config.schema import DataConfig
from suite.models.loss import IGNORED
from suite.training.check import LENGTHS
from suite.training.data import batches, document_length


def take(config, count):
    return list(islice(batches(config), count))


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes("Größe matters: naïve bytes, not characters. ".encode() * 3)
    return path


@pytest.mark.parametrize("kind", ["synthetic", "bytes", "packed"])
def test_the_seed_decides_and_torchs_random_state_does_not(kind, corpus):
    config = workload(data=DataConfig(kind=kind, path=str(corpus), mean_length=5))
    torch.manual_seed(1)
    first = take(config, 3)
    before = torch.get_rng_state()
    second = take(config, 3)
    assert torch.equal(torch.get_rng_state(), before)
    other = take(workload(data=config.data, seed=1), 3)
    for a, b, c in zip(first, second, other, strict=True):
        assert torch.equal(a.tokens, b.tokens)
        assert torch.equal(a.targets, b.targets)
        assert not torch.equal(a.tokens, c.tokens)
    assert not torch.equal(first[0].tokens, first[1].tokens)


def test_shapes_and_types(corpus):
    for kind in ("synthetic", "bytes", "packed"):
        batch = take(workload(batch_size=3, data=DataConfig(kind=kind, path=str(corpus))), 1)[0]
        tensors = [t for t in batch if t is not None]
        assert len(tensors) == (3 if kind == "packed" else 2)
        for tensor in tensors:
            assert tensor.shape == (3, 12)
            assert tensor.dtype == torch.int64
            assert tensor.untyped_storage().nbytes() == 3 * 12 * 8


def test_synthetic_tokens_cover_the_vocabulary_and_shift_by_one():
    config = workload(batch_size=64, seq_len=64)
    batch = take(config, 1)[0]
    assert batch.tokens.min() == 0
    assert batch.tokens.max() == config.model.vocab_size - 1
    assert torch.equal(batch.tokens[:, 1:], batch.targets[:, :-1])


def test_bytes_are_windows_of_the_file(corpus):
    text = corpus.read_bytes()
    starts = set()
    for batch in take(workload(data=DataConfig(kind="bytes", path=str(corpus))), 40):
        for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            window = bytes([*tokens, targets[-1]])
            assert window in text
            assert targets == [*tokens[1:], targets[-1]]
            starts.add(window)
    assert len(starts) > 20


def test_the_only_window_of_a_file_is_the_whole_file(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(bytes(range(13)))
    batch = take(workload(data=DataConfig(kind="bytes", path=str(path))), 1)[0]
    assert batch.tokens.tolist() == [list(range(12))] * 2
    assert batch.targets.tolist() == [list(range(1, 13))] * 2


@given(
    lengths=st.sampled_from(LENGTHS),
    mean=st.integers(2, 40),
    sigma=st.floats(0, 3),
    seq_len=st.integers(1, 70),
    seed=st.integers(0, 5),
)
def test_targets_never_cross_a_document(lengths, mean, sigma, seq_len, seed):
    data = packed(lengths=lengths, mean_length=mean, sigma=sigma)
    config = workload(seq_len=seq_len, seed=seed, data=data)
    tokens, targets, documents = take(config, 1)[0]
    assert (documents[:, 0] == 0).all()
    steps = documents.diff(dim=1)
    assert ((steps == 0) | (steps == 1)).all()
    inside = steps == 0
    assert torch.equal(targets[:, :-1][inside], tokens[:, 1:][inside])
    assert (targets[:, :-1][~inside] == IGNORED).all()
    assert (targets[:, 0] != IGNORED).all()  # documents have two tokens or more


def test_fixed_lengths_are_that_length():
    batch = take(workload(seq_len=12, data=packed(lengths="fixed", mean_length=5)), 1)[0]
    assert batch.documents.tolist() == [[0] * 5 + [1] * 5 + [2] * 2] * 2
    assert (batch.targets == IGNORED).nonzero()[:, 1].tolist() == [4, 9] * 2


@pytest.mark.parametrize("lengths", LENGTHS)
def test_lengths_have_the_stated_mean(lengths):
    data = packed(lengths=lengths, mean_length=200, sigma=0.5)
    generator = np.random.default_rng(0)
    drawn = np.array([document_length(data, generator) for _ in range(4000)])
    assert drawn.mean() == pytest.approx(200, rel=0.02)
    spread = {"fixed": 0, "uniform": 396 / 12**0.5, "lognormal": 200 * (np.exp(0.25) - 1) ** 0.5}
    assert drawn.std() == pytest.approx(spread[lengths], rel=0.05)


def test_lengths_reach_their_ends_and_never_below_two():
    generator = np.random.default_rng(0)
    uniform = packed(lengths="uniform", mean_length=4)
    assert {document_length(uniform, generator) for _ in range(300)} == {2, 3, 4, 5, 6}
    wild = packed(lengths="lognormal", mean_length=2, sigma=10.0)
    assert min(document_length(wild, generator) for _ in range(300)) == 2

"""Batches: random tokens, windows of a local file, or documents packed into rows."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from suite.config.schema import CellConfig, DataConfig
from suite.models.loss import IGNORED
from suite.training.check import MIN_DOCUMENT, check_data


class Batch(NamedTuple):
    """One micro-batch on the CPU.

    Attributes:
        tokens: (b, s), int64.
        targets: (b, s), int64: the next token, or IGNORED where it belongs to another document.
        documents: (b, s), int64, the number of each token's document in its row; None: one a row.
    """

    tokens: Tensor
    targets: Tensor
    documents: Tensor | None


def batches(config: CellConfig) -> Iterator[Batch]:
    """Batches without end, the same ones for the same seed and workload. Draws nothing from torch.

    Raises:
        UsageError: on a file that is missing, unreadable or too short, or lengths that make no sense.
    """
    check_data(config)
    return _generate(config)


def _generate(config: CellConfig) -> Iterator[Batch]:
    generator = np.random.default_rng(config.seed)
    shape = (config.batch_size, config.seq_len + 1)
    corpus = _corpus(config.data.path) if config.data.kind == "bytes" else None
    while True:
        documents = None
        if corpus is not None:
            starts = generator.integers(0, len(corpus) - config.seq_len, config.batch_size)
            tokens = np.stack([corpus[start : start + shape[1]] for start in starts]).astype(np.int64)
        else:
            tokens = generator.integers(0, config.model.vocab_size, shape)
        if config.data.kind == "packed":
            documents = np.stack([_row(config.data, shape[1], generator) for _ in range(shape[0])])
        yield _batch(tokens, documents)


def _batch(tokens: NDArray[np.int64], documents: NDArray[np.int64] | None) -> Batch:
    targets = tokens[:, 1:].copy()
    if documents is not None:
        targets[documents[:, 1:] != documents[:, :-1]] = IGNORED
    # Copies, so that a batch is three tensors of its own and never a view of something larger.
    return Batch(
        torch.from_numpy(tokens[:, :-1].copy()),
        torch.from_numpy(targets),
        None if documents is None else torch.from_numpy(documents[:, :-1].copy()),
    )


def _corpus(path: str) -> NDArray[np.uint8]:
    # Mapped, not read: a corpus may be larger than memory.
    return np.memmap(Path(path).expanduser(), dtype=np.uint8, mode="r")


def _row(data: DataConfig, length: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Document numbers 0, 0, ..., 1, 1, ... of one row; the row's end cuts the last document."""
    row = np.empty(length, dtype=np.int64)
    start = number = 0
    while start < length:
        size = document_length(data, generator)
        row[start : start + size] = number
        start, number = start + size, number + 1
    return row


def document_length(data: DataConfig, generator: np.random.Generator) -> int:
    """One length in tokens, at least two, from the distribution ``data.lengths``.

    ``fixed``: always mean_length. ``uniform``: from 2 to 2 * mean_length - 2. ``lognormal``: the
    logarithm is normal with standard deviation sigma, its mean such that lengths average mean_length.
    """
    mean = data.mean_length
    if data.lengths == "fixed":
        return mean
    if data.lengths == "uniform":
        return int(generator.integers(MIN_DOCUMENT, 2 * mean - MIN_DOCUMENT, endpoint=True))
    drawn = generator.lognormal(math.log(mean) - data.sigma**2 / 2, data.sigma)
    return max(MIN_DOCUMENT, round(min(drawn, 2.0**62)))

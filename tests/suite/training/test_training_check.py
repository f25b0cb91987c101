"""What is refused of data, optimizer and precision, in one line each."""

import pytest
from training_cases import packed, workload

from suite.config.schema import DataConfig, OptimizerConfig
from suite.errors import UsageError
from suite.training import check_training
from suite.training.data import batches

NEEDS = "data=bytes needs a readable file of at least seq_len + 1 = 13 bytes"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "fp16"}, "precision=fp16: expected one of fp32, bf16-mixed, bf16-true"),
        (
            {"optimizer": OptimizerConfig(kind="lion")},
            "optimizer.kind=lion: expected one of adamw, sgd",
        ),
        (
            {"optimizer": OptimizerConfig(impl="triton")},
            "optimizer.impl=triton: expected one of foreach, fused, forloop",
        ),
        ({"optimizer": OptimizerConfig(lr=-1.0)}, "optimizer.lr=-1.0: expected a number >= 0"),
        (
            {"optimizer": OptimizerConfig(weight_decay=float("nan"))},
            "optimizer.weight_decay=nan: expected a number >= 0",
        ),
        (
            {"optimizer": OptimizerConfig(momentum=1.0)},
            "optimizer.momentum=1.0: expected a number in [0, 1)",
        ),
        (
            {"data": DataConfig(kind="images")},
            "data.kind=images: expected one of synthetic, bytes, packed",
        ),
        (
            {"data": packed(lengths="zipf")},
            "data.lengths=zipf: expected one of fixed, uniform, lognormal",
        ),
        (
            {"data": packed(mean_length=1)},
            "data.mean_length=1: expected at least 2 tokens a document",
        ),
        (
            {"data": packed(sigma=-0.5)},
            "data.sigma=-0.5: expected a standard deviation of log(length) in [0, 10]",
        ),
        ({"data": DataConfig(kind="bytes")}, f"data.path=: {NEEDS}"),
        (
            {"data": DataConfig(kind="bytes", path="/nowhere/corpus.txt")},
            f"data.path=/nowhere/corpus.txt: No such file or directory: {NEEDS}",
        ),
    ],
)
def test_refused_with_one_line(changes, message):
    with pytest.raises(UsageError) as raised:
        check_training(workload(**changes))
    assert str(raised.value) == message


@pytest.mark.parametrize("size", [0, 12])
def test_a_file_too_short_for_one_window_is_refused(tmp_path, size):
    path = tmp_path / "short.txt"
    path.write_bytes(b"x" * size)
    config = workload(data=DataConfig(kind="bytes", path=str(path)))
    for refuse in (check_training, batches):
        with pytest.raises(UsageError) as raised:
            refuse(config)
        assert str(raised.value) == f"data.path={path}: has {size} bytes; {NEEDS}"


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(UsageError, match="Is a directory"):
        check_training(workload(data=DataConfig(kind="bytes", path=str(tmp_path))))


def test_accepted(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"exactly 13 by")
    check_training(workload())
    check_training(workload(data=packed(lengths="fixed", mean_length=2, sigma=0.0)))
    check_training(workload(data=DataConfig(kind="bytes", path=str(path))))

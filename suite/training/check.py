"""Whether a workload's data, optimizer and precision make sense, said before a child exists. Torch-free."""

import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from suite.config.schema import PRECISIONS, CellConfig, DataConfig, OptimizerConfig
from suite.errors import Unsupported, UsageError

DATA_KINDS = ("synthetic", "bytes", "packed")
LENGTHS = ("fixed", "uniform", "lognormal")
OPTIMIZER_KINDS = ("adamw", "sgd")
OPTIMIZER_IMPLS = ("foreach", "fused", "forloop")
MIN_DOCUMENT = 2  # tokens: one to see and one to predict


def check_training(config: CellConfig) -> None:
    """Raise UsageError unless batches can be read and the optimizer and precision are known."""
    _require_one_of("precision", config.precision, PRECISIONS)
    _check_optimizer(config.optimizer)
    check_data(config)


def check_compiler(config: CellConfig) -> None:
    """Raise Unsupported, saying what to install, where inductor cannot build kernels for the device."""
    if config.compile == "none" or config.compile_backend != "inductor":
        return
    otherwise = "or use compile_backend=aot_eager or compile=none"
    if config.device != "cpu":
        if importlib.util.find_spec("triton") is None:
            raise Unsupported(f"compile_backend=inductor: needs triton: pip install triton, {otherwise}")
        return
    # As inductor looks for it: CXX, or the platform's usual one.
    compiler = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        raise Unsupported(
            f"compile_backend=inductor: no C++ compiler {compiler}: install one (apt install g++) "
            f"or name it in CXX, {otherwise}"
        )
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise Unsupported(
            f"compile_backend=inductor: no Python.h: install Python's headers (apt install python3-dev), "
            f"{otherwise}"
        )


def check_data(config: CellConfig) -> None:
    """Raise UsageError unless :func:`suite.training.data.batches` can yield this cell's batches."""
    data = config.data
    _require_one_of("data.kind", data.kind, DATA_KINDS)
    if data.kind == "bytes":
        _check_corpus(data.path, config.seq_len)
    if data.kind == "packed":
        _check_lengths(data)


def _check_corpus(path: str, seq_len: int) -> None:
    allowed = f"data=bytes needs a readable file of at least seq_len + 1 = {seq_len + 1} bytes"
    if not path:
        raise UsageError("data.path", "", allowed)
    try:
        with Path(path).expanduser().open("rb") as stream:
            size = stream.seek(0, 2)
    except OSError as problem:
        raise UsageError("data.path", path, f"{problem.strerror}: {allowed}") from None
    if size < seq_len + 1:
        raise UsageError("data.path", path, f"has {size} bytes; {allowed}")


def _check_lengths(data: DataConfig) -> None:
    _require_one_of("data.lengths", data.lengths, LENGTHS)
    if data.mean_length < MIN_DOCUMENT:
        raise UsageError(
            "data.mean_length", data.mean_length, f"expected at least {MIN_DOCUMENT} tokens a document"
        )
    if not 0 <= data.sigma <= 10:
        raise UsageError(
            "data.sigma", data.sigma, "expected a standard deviation of log(length) in [0, 10]"
        )


def _check_optimizer(optimizer: OptimizerConfig) -> None:
    _require_one_of("optimizer.kind", optimizer.kind, OPTIMIZER_KINDS)
    _require_one_of("optimizer.impl", optimizer.impl, OPTIMIZER_IMPLS)
    for name in ("lr", "weight_decay"):
        value = getattr(optimizer, name)
        if not value >= 0:
            raise UsageError(f"optimizer.{name}", value, "expected a number >= 0")
    if not 0 <= optimizer.momentum < 1:
        raise UsageError("optimizer.momentum", optimizer.momentum, "expected a number in [0, 1)")


def _require_one_of(key: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UsageError(key, value, f"expected one of {', '.join(allowed)}")

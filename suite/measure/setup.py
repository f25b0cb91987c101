"""A cell's model as every pass begins with it: same seed, same weights, same batches."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_map_only

from suite.config.schema import CellConfig
from suite.measure.instrument import ModulePaths
from suite.models import build_model
from suite.models.decoder import Decoder
from suite.policies import Applied, make_policy
from suite.training.compile import Compilation, compile_model
from suite.training.data import Batch, batches
from suite.training.precision import PRECISION

# Added to the cell's seed for everything random after the weights: dropout, above all.
STEP_SEED = 1


@dataclass
class Subject:
    """A cell's model.

    Attributes:
        paths: who follows its modules; None where nothing may slow it, and where it is compiled.
        compilation: its compiler, once :meth:`apply_policy` has been called; None if the cell has none.
    """

    config: CellConfig
    model: Decoder
    paths: ModulePaths | None
    compilation: Compilation | None = None

    def apply_policy(self) -> Applied:
        """Apply the cell's policy, inside which any instrument stays, and then what compiles it."""
        policy, depth = make_policy(self.config.policy), self.config.model.n_layers
        applied = policy.apply(self.model, range(depth))
        if self.config.compile != "none":
            self.compilation = compile_model(self.model, self.config, applied)
        return applied


def build_subject(config: CellConfig, *, instrumented: bool) -> Subject:
    """Build the cell's model on its device, without its policy yet.

    An instrument is Python that runs with the model: there is none where the model is compiled.
    """
    torch.manual_seed(config.seed)
    with torch.device(config.device), default_dtype(PRECISION[config.precision].model_dtype):
        model = build_model(config)
    model.train()
    paths = ModulePaths(model) if instrumented and config.compile == "none" else None
    torch.manual_seed(config.seed + STEP_SEED)
    return Subject(config, model, paths)


def first_batch_cpu(config: CellConfig) -> Batch:
    """The first batch of the cell's data, on the host."""
    return next(iter(batches(config)))


def first_batch(config: CellConfig) -> Batch:
    """The first batch of the cell's data, on its device."""
    moved: Batch = tree_map_only(torch.Tensor, lambda t: t.to(config.device), first_batch_cpu(config))
    return moved


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Floating-point tensors are created in ``dtype`` inside."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)

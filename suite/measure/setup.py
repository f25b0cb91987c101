"""A cell's model as every pass begins with it: same seed, same weights, same batches."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from suite.config.schema import CellConfig
from suite.measure.instrument import ModulePaths
from suite.models import build_model
from suite.models.decoder import Decoder
from suite.policies import Applied, make_policy
from suite.training.precision import PRECISION

# Added to the cell's seed for everything random after the weights: dropout, above all.
STEP_SEED = 1


@dataclass(frozen=True)
class Subject:
    """A model, and who follows its modules; ``paths`` is None where nothing may slow it."""

    config: CellConfig
    model: Decoder
    paths: ModulePaths | None

    def apply_policy(self) -> Applied:
        """Apply the cell's policy, inside which any instrument stays."""
        policy, depth = make_policy(self.config.policy), self.config.model.n_layers
        return policy.apply(self.model, range(depth))


def build_subject(config: CellConfig, *, instrumented: bool) -> Subject:
    """Build the cell's model on its device, without its policy yet."""
    torch.manual_seed(config.seed)
    with torch.device(config.device), default_dtype(PRECISION[config.precision].model_dtype):
        model = build_model(config)
    model.train()
    paths = ModulePaths(model) if instrumented else None
    torch.manual_seed(config.seed + STEP_SEED)
    return Subject(config, model, paths)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Floating-point tensors are created in ``dtype`` inside."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)

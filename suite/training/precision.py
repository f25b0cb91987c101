"""What a precision means for the model, for autocast and for Lightning."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from lightning.pytorch.plugins.precision import Precision as LightningPrecision
from torch import nn


@dataclass(frozen=True)
class Precision:
    """One row of :data:`PRECISION`.

    Attributes:
        model_dtype: dtype of the parameters, and so of gradients and optimizer state.
        autocast_dtype: dtype of matrix products where it differs from the model's.
    """

    model_dtype: torch.dtype
    autocast_dtype: torch.dtype | None = None

    def autocast(self, device_type: str) -> AbstractContextManager[object]:
        """The context of forward and loss, in every pass.

        The cache of cast weights is off, as in Lightning's own plugin: with it on, the casts of all
        weights would live to the end of the forward, under every policy.
        """
        if self.autocast_dtype is None:
            return nullcontext()
        return torch.autocast(device_type, dtype=self.autocast_dtype, cache_enabled=False)


PRECISION: dict[str, Precision] = {
    "fp32": Precision(torch.float32),
    "bf16-mixed": Precision(torch.float32, torch.bfloat16),
    "bf16-true": Precision(torch.bfloat16),
}


class PrecisionPlugin(LightningPrecision):
    """Our precision inside Lightning's loop.

    Lightning's own choice by name assumes CUDA unless it is told of its own CPU accelerator, and turns
    autocast off with a warning where CUDA is missing.
    """

    def __init__(self, name: str, device_type: str) -> None:
        self._precision, self._device_type = PRECISION[name], device_type

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Refuse a model of another dtype: converting it here would hide what was built and measured."""
        wanted = self._precision.model_dtype
        for name, parameter in module.named_parameters():
            if parameter.dtype != wanted:
                raise ValueError(f"{name} is {parameter.dtype}, this precision trains {wanted}")
        return module

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        """Autocast around forward and loss, not around backward."""
        with self._precision.autocast(self._device_type):
            yield

"""The training loop: Lightning's Trainer with everything off that is not training."""

import logging
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.optim import Optimizer

from suite.config.schema import CellConfig
from suite.models.decoder import Decoder
from suite.training.data import Batch, batches
from suite.training.device import OneDeviceStrategy, environment
from suite.training.optimizers import build_optimizer
from suite.training.precision import PrecisionPlugin
from suite.training.step import model_loss


class StepObserver:
    """Told what the loop is about to do; every method does nothing unless overridden."""

    def on_optimizer(self, optimizer: Optimizer) -> None:
        """The optimizer exists; its state does not yet."""

    def on_step_start(self, index: int, batch: Batch) -> None:
        """Step ``index`` begins; its batch is on the device and no gradient exists."""

    def on_phase(self, phase: str) -> None:
        """What follows is ``forward``, ``loss``, ``backward``, ``optimizer`` or ``idle``."""

    def on_step_end(self, index: int) -> bool:
        """Step ``index`` ended and its gradients are gone. True ends the training here."""
        del index
        return False


def train(model: Decoder, config: CellConfig, observer: StepObserver, max_steps: int) -> None:
    """Train ``model`` for at most ``max_steps`` steps of the cell's workload, in place.

    Nothing waits for the device but what the observer does. Nothing is printed or written. The model is
    in training mode during the steps; it stays on the device afterwards, without gradients.
    """
    device = torch.device(config.device)
    with _without_advice():
        trainer = pl.Trainer(
            barebones=True,
            max_steps=max_steps,
            strategy=OneDeviceStrategy(device),
            plugins=[PrecisionPlugin(config.precision, device.type), environment()],
            devices=1,
            use_distributed_sampler=False,
            enable_autolog_hparams=False,
        )
        steps = _Steps(model, config, observer)
        trainer.fit(steps, train_dataloaders=_FirstBatches(config, max_steps))


class _FirstBatches:
    """The first ``count`` batches. Sized, or else Lightning fetches each batch one step early."""

    def __init__(self, config: CellConfig, count: int) -> None:
        self._config, self._count = config, count

    def __iter__(self) -> Iterator[Batch]:
        return islice(batches(self._config), self._count)

    def __len__(self) -> int:
        return self._count


class _Steps(pl.LightningModule):
    """Automatic optimization of ``model``, reporting to ``observer`` between its parts."""

    def __init__(self, model: Decoder, config: CellConfig, observer: StepObserver) -> None:
        super().__init__()
        self.model = model
        self._config, self._observer = config, observer
        self._on_sigterm = signal.getsignal(signal.SIGTERM)

    def __setattr__(self, name: str, value: Any) -> None:
        # Lightning labels the module with the hook's name around every hook. nn.Module's own way of
        # setting an attribute, which looks for parameters, makes that a fifth of the loop's overhead.
        if value is None or isinstance(value, str):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def configure_optimizers(self) -> Optimizer:
        optimizer = build_optimizer(self.model.parameters(), self._config.optimizer)
        self._observer.on_optimizer(optimizer)
        return optimizer

    def on_train_start(self) -> None:
        # Lightning's handler would only note the signal and let a stuck step run on.
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and self._on_sigterm is not None:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self._observer.on_step_start(batch_idx, batch)

    def training_step(self, batch: Batch) -> Tensor:
        return model_loss(self.model, batch, self._observer.on_phase)

    def backward(self, loss: Tensor) -> None:
        self._observer.on_phase("backward")
        torch.autograd.backward(loss)

    def optimizer_step(
        self,
        epoch: int,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
        optimizer: Any,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        # The plain optimizer under Lightning's wrapper, which adds gradient clipping and hooks that nothing
        # here uses, at a tenth of the loop's overhead.
        def closure() -> Any:
            assert optimizer_closure is not None
            loss = optimizer_closure()
            self._observer.on_phase("optimizer")
            return loss

        optimizer.optimizer.step(closure)

    def optimizer_zero_grad(self, *_: Any) -> None:
        """Nothing: Lightning would drop the gradients only after the next forward, in its peak."""

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:  # noqa: ARG002
        self.trainer.optimizers[0].zero_grad(set_to_none=True)
        self._observer.on_phase("idle")
        if self._observer.on_step_end(batch_idx):
            self.trainer.should_stop = True


# Notes that Lightning prints at level INFO: which features are off, which devices there are, products.
_ADVICE = ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.rank_zero")
# What it calls inside torch, and that it knows no accelerator but its own.
_EXPECTED = (
    (r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning),
    (r"GPU available but not used\.", UserWarning),
)


@contextmanager
def _without_advice() -> Iterator[None]:
    """Silence what Lightning always says here; everything else still comes through."""
    loggers = [logging.getLogger(name) for name in _ADVICE]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        for message, category in _EXPECTED:
            warnings.filterwarnings("ignore", message, category)
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

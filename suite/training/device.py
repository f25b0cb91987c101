"""The device, through torch's own accelerator API: the same code for CUDA, ROCm, XPU and the CPU."""

from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor

from suite.training.data import Batch


class TorchAccelerator(Accelerator):
    """Lightning's view of whatever ``torch.accelerator`` offers, or of the CPU.

    Lightning's own accelerators are one class per vendor, have none for XPU, and touch allocator caches
    and environment variables that a measurement must find as it left them.
    """

    def setup_device(self, device: torch.device) -> None:
        """Make ``device`` the current one."""
        if device.type != "cpu":
            torch.accelerator.set_device_index(device.index or 0)

    def teardown(self) -> None:
        """Leave the allocator as it is: its statistics are read after training."""

    @staticmethod
    def parse_devices(devices: Any) -> list[int]:
        """One device: which one is the strategy's to say."""
        del devices
        return [0]

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        """The current accelerator's devices by index, or the CPU."""
        current = torch.accelerator.current_accelerator()
        kind = current.type if current is not None else "cpu"
        return [torch.device(kind, index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        """One device per process."""
        return 1

    @staticmethod
    def is_available() -> bool:
        """The CPU always is; a missing accelerator is refused before a child exists."""
        return True

    @staticmethod
    def name() -> str:
        """Name in Lightning's registry."""
        return "torch"


class OneDeviceStrategy(SingleDeviceStrategy):
    """A single device on which the model is built and stays.

    Lightning's teardown moves model and optimizer to the host: minutes and memory for nothing, and the
    gradients and statistics that a pass reads afterwards would be gone.
    """

    strategy_name = "one_device"

    def __init__(self, device: torch.device) -> None:
        super().__init__(device=device, accelerator=TorchAccelerator())

    def batch_to_device(
        self,
        batch: Batch,
        device: torch.device | None = None,
        dataloader_idx: int = 0,
    ) -> Batch:
        """The batch on this device; nothing is copied on the CPU."""
        del device, dataloader_idx
        tokens, targets, documents = batch
        there = self.root_device
        return Batch(
            tokens.to(there), targets.to(there), None if documents is None else documents.to(there)
        )

    def backward(self, closure_loss: Tensor, *_: Any, **__: Any) -> Tensor:
        """The module's backward, without the hooks around it."""
        assert self.lightning_module is not None
        self.lightning_module.backward(closure_loss)
        return closure_loss.detach()

    def model_to_device(self) -> None:
        """Refuse a model that lives elsewhere. It is built in place; fake parameters cannot be moved."""
        assert self.model is not None
        for name, parameter in self.model.named_parameters():
            if parameter.device.type != self.root_device.type:
                raise ValueError(f"{name} is on {parameter.device}, training is on {self.root_device}")

    def teardown(self) -> None:
        """Leave model and optimizer where they are."""


def environment() -> LightningEnvironment:
    """A plain local process, also inside a Slurm job, whose signals Lightning would take over."""
    return LightningEnvironment()

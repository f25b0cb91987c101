"""How a model is trained: batches, optimizers, precision, the device and the loop.

Importing this package imports no torch; its modules do, but for :mod:`suite.training.check`.
"""

from suite.training.check import check_training

__all__ = ["check_training"]

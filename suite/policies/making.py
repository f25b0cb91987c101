"""What the tensors that are being made are for, said by a policy to whoever accounts for memory.

An operator cannot tell that its output is a copy on the host, or a kept tensor that comes back: on the
CPU both look like any other tensor of the device.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# On the host, in place of a tensor of the device. Not the device's memory, even where that is the CPU.
HOST = "host"
# On the device again, as autograd saved it.
RESTORED = "restored"

_PURPOSE: ContextVar[str] = ContextVar("purpose", default="")


def purpose() -> str:
    """:data:`HOST`, :data:`RESTORED`, or empty for everything else."""
    return _PURPOSE.get()


@contextmanager
def making(what: str) -> Iterator[None]:
    """Tensors made inside, in this thread, are ``what``."""
    token = _PURPOSE.set(what)
    try:
        yield
    finally:
        _PURPOSE.reset(token)

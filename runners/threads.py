"""How the CPU's threads are set for every child alike, and said in its record."""

import contextlib
import os

# Read once, when a library is loaded: in the fork server, hence before any child is forked.
_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_SPIN_COUNT = "3000"


def cores() -> int:
    """The cores this process may use."""
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def openmp_waiting() -> dict[str, str]:
    """How long an OpenMP thread spins at a barrier before it sleeps, as environment variables.

    What the user has set stands. Else it spins for a few microseconds, which covers the siblings of a
    thread on an idle machine. GNU's default is milliseconds: as soon as another process wants one of
    the cores, that burns the very time the late sibling needs, and steps take ten times as long.
    """
    own = {name: os.environ[name] for name in _WAITING if name in os.environ}
    return own or {"GOMP_SPINCOUNT": _SPIN_COUNT}


def server_environment(threads: int) -> dict[str, str]:
    """The thread settings the fork server is to be started with."""
    return {
        **dict.fromkeys(_COUNTS, str(threads)),
        **openmp_waiting(),
        # OpenBLAS makes its pool when it is loaded, and a pool does not survive the fork. Torch does
        # not compute with it; torch's own threads are set in each child.
        "OPENBLAS_NUM_THREADS": "1",
    }

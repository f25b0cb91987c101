"""How the CPU's threads are set for every child alike, and said in its record."""

import contextlib
import os

# Read once, when a library is loaded: in the fork server, hence before any child is forked.
_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def cores() -> int:
    """The cores this process may use."""
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def wait_policy() -> str:
    """What an OpenMP thread does at a barrier: ``PASSIVE`` unless the user's environment says else.

    The default is to spin. As soon as another process wants one of the cores, spinning threads burn
    the very time their late sibling needs: steps then take several times as long, and scatter.
    """
    return os.environ.get("OMP_WAIT_POLICY", "PASSIVE")


def server_environment(threads: int) -> dict[str, str]:
    """The thread settings the fork server is to be started with."""
    return {
        **dict.fromkeys(_COUNTS, str(threads)),
        "OMP_WAIT_POLICY": wait_policy(),
        # OpenBLAS makes its pool when it is loaded, and a pool does not survive the fork. Torch does
        # not compute with it; torch's own threads are set in each child.
        "OPENBLAS_NUM_THREADS": "1",
    }

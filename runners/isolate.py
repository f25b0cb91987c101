"""Makes a freshly forked child a process of its own, before it does anything else."""

import contextlib
import faulthandler
import fcntl
import multiprocessing
import os
import resource
import signal
import sys
import threading
from multiprocessing.connection import wait
from pathlib import Path


def isolate(log: Path, environment: dict[str, str], memory_bytes: int | None, threads: int) -> None:
    """Own session and group, tied to the parent's life, output in ``log``, limits and lease set.

    ``memory_bytes`` bounds private writable memory (RLIMIT_DATA: unlike RLIMIT_AS it leaves out
    mapped libraries and reserved address space). ``threads`` is torch's intra-op thread count.
    """
    _own_group()
    _die_with_parent()
    redirect(log)
    _default_signals()
    os.environ.update(environment, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    if memory_bytes is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        bound = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))
    import torch

    torch.set_num_threads(threads)


def lift_memory_limit() -> None:
    """Undo the limit of :func:`isolate`: the measurement is over."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def _own_group() -> None:
    """So that the terminal's Ctrl-C misses the child, and one signal reaches its own children too."""
    if os.getpgrp() != os.getpid():
        os.setsid()


def _die_with_parent() -> None:
    """Have the whole group killed when the parent process is gone, however it went.

    PR_SET_PDEATHSIG would watch the fork server, which stays as long as a child does. What tells of
    the parent is the read end of a pipe whose other end only the parent has. On Linux the kernel
    itself sends SIGKILL to the group when that pipe hangs up, even while Python is stuck.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    hang_up = parent.sentinel
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(hang_up, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(hang_up, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(hang_up, fcntl.F_SETFL, fcntl.fcntl(hang_up, fcntl.F_GETFL) | os.O_ASYNC)
        if not wait([hang_up], timeout=0):
            return
        os.killpg(0, signal.SIGKILL)  # it had hung up before we asked to be told

    def watch() -> None:
        wait([hang_up])
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def redirect(log: Path) -> None:
    """Standard output and error go to the end of ``log`` from now on."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    # A child that is killed must not take its last lines along.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _default_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # On a deadly signal, and on the SIGTERM of the time limit, the log shows where Python was.
    faulthandler.enable()
    faulthandler.register(signal.SIGTERM, all_threads=True, chain=True)

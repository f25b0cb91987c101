"""Who writes a run, so that what a killed process left open can be told from what another is writing."""

import getpass
import socket

import psutil

# The kernel counts a process's start in ticks since boot, and the clock may be set meanwhile.
_SAME_START_S = 2.0


def user() -> str:
    """The login name, or ``unknown`` (a container's user id need not have one)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def this_process() -> str:
    """``host pid start``, the start in seconds of Unix time: unique even when pids are used again."""
    process = psutil.Process()
    return f"{socket.gethostname()} {process.pid} {process.create_time():.0f}"


def is_gone(process: str) -> bool:
    """Whether the process that called itself ``process`` ran on this machine and has ended."""
    match process.split(" "):
        case [host, pid, start] if host == socket.gethostname() and pid.isdigit() and start.isdigit():
            pass
        case _:
            return False
    try:
        return abs(psutil.Process(int(pid)).create_time() - int(start)) > _SAME_START_S
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False

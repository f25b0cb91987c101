"""Naming the line of code that failed, without the machine's own paths."""

import re
import sys
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

_STDLIB = sysconfig.get_path("stdlib")
_SITE = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
_FAULT = re.compile(r'^ +File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$')


def short_path(file: str) -> str:
    """``file`` relative to the entry of ``sys.path`` it was imported from."""
    roots = [str(Path(entry).resolve()) for entry in sys.path]
    inside = [root for root in roots if file.startswith(root + "/")]
    return file[len(max(inside, key=len)) + 1 :] if inside else Path(file).name


def _telling(file: str) -> bool:
    """Whether a frame of ``file`` tells a reader something: our code or torch, no other library."""
    if file.startswith(_SITE):
        return short_path(file).startswith("torch/")
    return not file.startswith((_STDLIB, "<"))


def of_traceback(trace: TracebackType | None) -> str:
    """``file:line in function`` of the innermost frame in our code or torch; empty without one."""
    frames = traceback.extract_tb(trace)
    for frame in reversed(frames):
        if _telling(frame.filename):
            return f"{short_path(frame.filename)}:{frame.lineno} in {frame.name}"
    return ""


def of_fault_log(text: str) -> str:
    """The same from what :mod:`faulthandler` wrote when a signal came."""
    # The thread that was hit comes last, marked "Current thread"; others are only waiting.
    current = text.rpartition("Current thread")[2]
    for line in current.splitlines():
        match = _FAULT.match(line)
        if match and _telling(match["file"]):
            return f"{short_path(match['file'])}:{match['line']} in {match['function']}"
    return ""

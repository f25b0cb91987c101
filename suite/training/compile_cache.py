"""A private place for what torch.compile writes. Torch-free: to be entered before anything is compiled.

Inductor reads pickles back from its cache, which by default is a folder of a known name below /tmp that
whoever came first owns. A pickle is code: it may come from no place that another user can write to.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from suite.errors import UsageError

_FOLDER = "compile_cache"
_PLACES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
# In this process: a measuring child has a memory limit of its own, and its cores are leased.
_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"


@contextmanager
def private_cache(runs: Path, *, cold: bool) -> Iterator[Path]:
    """Compilers write below ``runs`` inside, where only this user may read or write.

    Args:
        runs: where the results of a session go, ``paths.runs``.
        cold: a folder of this call's own, removed afterwards, so that everything is compiled: what
            another process left there would make a compile time mean nothing.

    Raises UsageError if the folder belongs to somebody else.
    """
    folder = (runs / _FOLDER).resolve()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise UsageError(
            "paths.runs", runs, f"{folder} belongs to another user, who could have code run here"
        )
    folder.chmod(0o700)
    if cold:
        with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as own, _pointing_to(own):
            yield Path(own)
    else:
        with _pointing_to(str(folder)):
            yield folder


@contextmanager
def _pointing_to(folder: str) -> Iterator[None]:
    changes = {**dict.fromkeys(_PLACES, folder), _THREADS: "1"}
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

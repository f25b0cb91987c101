"""Which code measured: a digest that changes exactly when the measuring code does."""

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import suite

_ROOT = Path(suite.__file__).resolve().parent.parent
_GIT_TIMEOUT_S = 10.0


def code_version(root: Path = _ROOT) -> dict[str, Any]:
    """``version``, ``source_digest``, ``git`` (commit, or empty outside a checkout), ``dirty``.

    The digest is the SHA-256 over path and text of every module of the suite and of the child's
    entry point, so that an installed copy and a checkout of the same code agree.
    """
    commit = _git(root, "rev-parse", "HEAD")
    # An installed copy may lie in a folder that some other repository ignores.
    tracked = commit and _git(root, "ls-files", "suite/__init__.py")
    return {
        "version": suite.__version__,
        "source_digest": source_digest(root),
        "git": commit if tracked else "",
        "dirty": bool(tracked and _git(root, "status", "--porcelain", "--", "suite", "runners")),
    }


def source_digest(root: Path = _ROOT) -> str:
    """64 hexadecimal digits over ``suite/**/*.py`` and ``runners/child.py`` below ``root``."""
    files = [*root.glob("suite/**/*.py"), *root.glob("runners/child.py")]
    digest = hashlib.sha256()
    for file in sorted(files):
        text = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()

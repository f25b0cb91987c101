"""Imported once by the fork server, and through it by every child at no cost.

The fork server imports its preload list before it forks anything; this module is that list's only
hook into it. Importing it outside of a fork server (a child whose server could not find it) is
slow but harmless.
"""

import contextlib
import gc
import importlib
import os
import pkgutil
import traceback

import suite

# Whatever children would otherwise each import for themselves.
_LIBRARIES = ("torch", "torch.utils.checkpoint", "torch.utils.flop_counter", "lightning.pytorch")
_PACKAGES = ("config", "measure", "models", "policies", "predict", "training")

# Module name to the traceback of why it could not be imported. A preload that fails must not take
# the server down: the child that needs the module says it, in its own record.
failures: dict[str, str] = {}


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception:  # noqa: BLE001 - a broken user module may raise anything at import
        failures[name] = traceback.format_exc()


def _suite_modules() -> list[str]:
    found = pkgutil.walk_packages(suite.__path__, "suite.", onerror=lambda _: None)
    return [m.name for m in found if m.name.split(".")[1] in _PACKAGES]


# Signals sent to the terminal's or the job's process group are the parent's to handle. A server
# that died of them would take the running measurement along.
with contextlib.suppress(OSError):
    os.setsid()
for _name in (*_LIBRARIES, *_suite_modules()):
    _import(_name)
# Children's collections then neither walk nor copy the pages of what is imported here.
gc.collect()
gc.freeze()

"""The rules of a policy as things that can be counted: where each applies and how often it did."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase


def operator_name(text: str) -> str:
    """``mm`` from any of ``mm``, ``aten.mm``, ``aten::mm`` and ``aten.mm.default``.

    Operators of other libraries keep their namespace: ``library::op`` from ``library.op``,
    ``library::op.default`` and the like.
    """
    namespace, separator, name = text.removeprefix("torch.ops.").replace("::", ".").partition(".")
    if not separator:
        return namespace
    operator = name.split(".", maxsplit=1)[0]
    return operator if namespace == "aten" else f"{namespace}::{operator}"


@dataclass
class Entry:
    """One rule of a policy.

    Attributes:
        name: as reports show it: ``blocks``, ``attn_norm``, ``mm``.
        scope: globs of the module paths it is for; what is below them belongs to it too.
        operators: names of the operators whose outputs it is for; empty for all of them.
        required: a person wrote this very rule: no hit is an error. Of the rules of a preset one must hit.
        hits: how often it applied in the forwards since.
        host_bytes: what it moved to host memory in the forwards since.
    """

    name: str
    scope: tuple[str, ...] = ("blocks.*",)
    operators: frozenset[str] = frozenset()
    required: bool = True
    hits: int = 0
    host_bytes: int = 0

    def covers(self, module: str, operator: str) -> bool:
        """Whether what ``operator`` made in ``module`` belongs to this rule."""
        if self.operators and operator_name(operator) not in self.operators:
            return False
        return any(fnmatchcase(module, glob) or fnmatchcase(module, f"{glob}.*") for glob in self.scope)


def scope_of(blocks: Iterable[int], part: str = "") -> tuple[str, ...]:
    """Globs for ``part`` of each of the ``blocks``, or for the whole blocks."""
    return tuple(f"blocks.{index}.{part}" if part else f"blocks.{index}" for index in blocks)

"""Lists of names as an option, in one normal form."""

from collections.abc import Sequence
from typing import Any

from suite.errors import UsageError


def target_names(targets: Any, known: Sequence[str]) -> Any:
    """Names from a list or from text joined by ``+``, in the order of ``known``; ``all`` for all of them.

    What is not known is left as it is, for :func:`check_targets` to refuse.
    """
    names = targets.split("+") if isinstance(targets, str) else [str(t) for t in targets]
    if names == ["all"] or (set(names) == set(known) and len(names) == len(known)):
        return "all"
    order = {name: position for position, name in enumerate(known)}
    return tuple(sorted(names, key=lambda name: order.get(name, len(order))))


def check_targets(targets: Any, known: Sequence[str]) -> None:
    """Raise UsageError unless ``targets`` is ``all`` or some of ``known``, each once."""
    if targets == "all":
        return
    shown = "+".join(targets)
    if not targets or any(t not in known for t in targets):
        raise UsageError("policy.targets", shown, f"expected all, or some of {', '.join(known)}")
    if len(set(targets)) != len(targets):
        raise UsageError("policy.targets", shown, "names a target twice")

"""Which operator outputs a region keeps. Imports torch: used by ``apply`` only."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

from suite.policies.ops import operator_name


class Selection:
    """A rule over operators, and what it met: ``hits`` by name, and every name that ``ran``."""

    def __init__(self, save: frozenset[str], *, every_second: frozenset[str]) -> None:
        self._save = save
        self._every_second = every_second
        self.hits: Counter[str] = Counter()
        self.ran: set[str] = set()

    def contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """The pair that ``checkpoint(context_fn=...)`` asks for, anew for each region and forward."""
        pair: tuple[AbstractContextManager[Any], AbstractContextManager[Any]]
        pair = create_selective_checkpoint_contexts(self._rule())  # type: ignore[no-untyped-call]
        return pair

    def _rule(self) -> Callable[..., CheckpointPolicy]:
        # Counted per region and apart for the replay: a count that runs on across regions keeps
        # 2, 1, 2, 1 of three products, and torch before 2.13 asks the rule again in the replay.
        seen = {False: 0, True: 0}

        def rule(
            context: SelectiveCheckpointContext, operator: Any, *_: Any, **__: Any
        ) -> CheckpointPolicy:
            name = operator_name(operator.name())
            keep = name in self._save
            if keep and name in self._every_second:
                seen[context.is_recompute] += 1
                keep = seen[context.is_recompute] % 2 == 1
            if not context.is_recompute:
                self.ran.add(name)
                if keep:
                    self.hits[name] += 1
            return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

        return rule

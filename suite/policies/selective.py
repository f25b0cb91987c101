"""Which operator outputs a region keeps. Imports torch: used by ``apply`` only."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

from suite.policies.entries import Entry, operator_name


@dataclass(frozen=True)
class OperatorRule:
    """Keep the outputs of an entry's operators.

    Attributes:
        entry: names the operators and counts what is kept.
        every_second: keep the first, third, ... of a region only.
        inside: only inside a module marked with this name; empty for anywhere.
        except_in: not inside a module marked with this name.
    """

    entry: Entry
    every_second: bool = False
    inside: str = ""
    except_in: str = ""

    def selects(self, operator: str, mark: str) -> bool:
        """Whether the rule is about ``operator`` in a module marked ``mark``."""
        if operator not in self.entry.operators or (self.inside and mark != self.inside):
            return False
        return not self.except_in or mark != self.except_in


class Selection:
    """Rules over operators, and every operator that ``ran``.

    For compiled code the rules are asked once, while the graph is traced, when no module is running: they
    cannot go by :meth:`mark` there, and hits are those of the trace.

    Of an operator in ``second_of_two`` a rule keeps the second, fourth, ... output of a region.
    """

    def __init__(self, rules: Sequence[OperatorRule], second_of_two: frozenset[str] = frozenset()) -> None:
        self._rules = tuple(rules)
        self._second_of_two = second_of_two
        self._marks = [""]
        self.ran: set[str] = set()

    def mark(self, module: nn.Module, name: str) -> None:
        """Let rules tell what runs inside ``module``, in the forward and in the replay."""
        inner = module.forward

        def forward(*args: Any) -> Any:
            self._marks.append(name)
            try:  # a replay that stops early leaves by an exception
                return inner(*args)
            finally:
                self._marks.pop()

        module.forward = forward

    def contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """The pair that ``checkpoint(context_fn=...)`` asks for, anew for each region and forward."""
        pair: tuple[AbstractContextManager[Any], AbstractContextManager[Any]]
        pair = create_selective_checkpoint_contexts(self._policy())  # type: ignore[no-untyped-call]
        return pair

    def chooser(self) -> Callable[[Any], Entry | None]:
        """For one run of one region: operator to the entry that keeps its output, called once for each.

        Counted per region: a count that runs on across regions keeps 2, 1, 2, 1 of three products.
        """
        seen = {rule.entry.name: 0 for rule in self._rules}

        def choose(operator: Any) -> Entry | None:
            name = operator_name(operator.name())
            for rule in self._rules:
                if rule.selects(name, self._marks[-1]):
                    seen[rule.entry.name] += 1
                    odd = seen[rule.entry.name] % 2 == 1
                    keep = not odd if name in self._second_of_two else odd or not rule.every_second
                    return rule.entry if keep else None
            return None

        return choose

    @property
    def context_fn(self) -> Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]]:
        """:meth:`contexts` as a plain function, the only kind that Dynamo accepts of ``checkpoint``."""
        return lambda: self.contexts()

    def _policy(self) -> Callable[..., CheckpointPolicy]:
        # Apart for the replay: torch before 2.13 asks the rule again there.
        choosers = {replay: self.chooser() for replay in (False, True)}

        def policy(
            context: SelectiveCheckpointContext, operator: Any, *_: Any, **__: Any
        ) -> CheckpointPolicy:
            replay = bool(context.is_recompute)
            entry = choosers[replay](operator)
            if not replay:
                self.ran.add(operator_name(operator.name()))
                if entry is not None:
                    entry.hits += 1
            return CheckpointPolicy.PREFER_RECOMPUTE if entry is None else CheckpointPolicy.MUST_SAVE

        return policy

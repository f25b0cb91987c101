"""What every policy family is: a checked ``Config`` and one verb."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from suite.config.schema import CellConfig
from suite.errors import UsageError

if TYPE_CHECKING:
    from suite.models.decoder import Decoder


def nothing_to_verify() -> None:
    """For policies whose regions are known as soon as they are applied."""


@dataclass(frozen=True)
class Applied:
    """What a policy did to a model.

    Attributes:
        regions: module path (or span of paths) of each checkpointed region, in forward order.
        verify: to be called after the first forward; raises MatchedNothing if the policy selected
            nothing that ran, and lists what did run.
    """

    regions: tuple[str, ...] = ()
    verify: Callable[[], None] = nothing_to_verify


class Policy(ABC):
    """A policy family. Subclasses state ``Config``, refuse what cannot work, and ``apply``."""

    @dataclass(frozen=True)
    class Config:
        """Options of the family; every default is the recommended value."""

        def check(self) -> None:
            """Raise UsageError on a value that no model could accept."""

    family: ClassVar[str]

    def __init__(self, config: Any) -> None:
        self.config = config

    def check(self, cell: CellConfig) -> None:  # noqa: B027
        """Raise Unsupported if the policy cannot apply to this workload. Torch-free."""

    @abstractmethod
    def apply(self, model: "Decoder") -> Applied:
        """Change the model in place so that its forward keeps only what the policy keeps.

        Parameter names, the state dict and the modules' types stay as they are.
        """


def require_bool(key: str, value: object) -> None:
    """Raise UsageError unless ``value`` is true or false."""
    if not isinstance(value, bool):
        raise UsageError(key, value, "expected true or false")

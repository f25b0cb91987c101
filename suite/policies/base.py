"""What every policy family is: a checked ``Config`` and one verb."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from suite.config.schema import CellConfig
from suite.errors import MatchedNothing, Unsupported, UsageError
from suite.policies.entries import Entry
from suite.policies.host_ledger import HostLedger

if TYPE_CHECKING:
    from suite.models.decoder import Decoder


@dataclass(frozen=True)
class Region:
    """A part of the model whose inside is rebuilt in backward.

    Attributes:
        label: for people: a module path, or ``blocks.0-2``.
        modules: paths of the modules that are inside.
    """

    label: str
    modules: tuple[str, ...]

    @classmethod
    def of_block(cls, index: int) -> "Region":
        """One whole block."""
        return cls(f"blocks.{index}", (f"blocks.{index}",))


@dataclass(frozen=True)
class Tolerance:
    """How far from bitwise equal to ``none`` a policy's step may be.

    Attributes:
        relative: norm of the difference over the norm of the reference, for the loss and each gradient.
        reason: what differs, and where the bound comes from.
        exact_forward: the loss is that of ``none`` all the same; only gradients may differ.
    """

    relative: float
    reason: str
    exact_forward: bool = False


@dataclass(frozen=True)
class Applied:
    """What a policy did to a model.

    Attributes:
        regions: in forward order.
        entries: the rules of the policy, which count their hits from now on.
        key: the option that chose the entries, for the message of :meth:`verify`.
        ran: what a rule could have hit, once a forward has run.
        host: the account of host memory, where the policy uses any.
        partitioner: settings of ``torch._functorch.config`` under which the model's graphs, and no others,
            are split into forward and backward; without meaning where nothing is compiled.
    """

    regions: tuple[Region, ...] = ()
    entries: tuple[Entry, ...] = ()
    key: str = "policy"
    ran: Callable[[], Iterable[str]] = tuple
    host: HostLedger | None = None
    partitioner: Mapping[str, Any] = field(default_factory=dict)

    def verify(self) -> None:
        """To be called after the first forward.

        Raises MatchedNothing, listing what did run, if a rule that a person wrote hit nothing, or if no
        rule of a preset did.
        """
        missed = [entry for entry in self.entries if not entry.hits]
        idle = [entry.name for entry in missed if entry.required or len(missed) == len(self.entries)]
        if idle:
            there = ", ".join(sorted(self.ran())) or "nothing: no forward has run yet"
            named = "+".join(idle)
            raise MatchedNothing(f"{self.key}={named}: matched nothing that ran; these did: {there}")

    def joined(self, other: "Applied", prefix: str) -> "Applied":
        """This and what another policy did to other blocks, whose entries are named after it."""
        for entry in other.entries:
            entry.name = f"{prefix}: {entry.name}"
        return Applied(
            self.regions + other.regions,
            self.entries + other.entries,
            "policy",
            lambda: {*self.ran(), *other.ran()},
            self.host.joined(other.host) if self.host and other.host else self.host or other.host,
            {**self.partitioner, **other.partitioner},
        )

    def counted(self) -> tuple[Entry, ...]:
        """The entries as they are now, with what they counted so far."""
        return tuple(map(replace, self.entries))


class Policy(ABC):
    """A policy family. Subclasses state ``Config``, refuse what cannot work, and ``apply``."""

    @dataclass(frozen=True)
    class Config:
        """Options of the family; every default is the recommended value."""

        def check(self) -> None:
            """Raise UsageError on a value that no model could accept."""

    family: ClassVar[str]
    # The option that ``family.value`` sets, where policies are written in one word.
    shorthand: ClassVar[str] = ""
    # Whether torch.compile traces what the family does. What Python does in a replay, or in hooks on
    # saved tensors, it does not.
    compiles: ClassVar[bool] = True

    def __init__(self, config: Any) -> None:
        self.config = config

    def check(self, cell: CellConfig) -> None:  # noqa: B027
        """Raise Unsupported if the policy cannot apply to this workload. Torch-free."""

    def check_compile(self, cell: CellConfig) -> None:
        """Raise Unsupported if torch.compile would lose what the policy does. Torch-free."""
        if cell.compile != "none" and not self.compiles:
            raise Unsupported(
                f"compile={cell.compile}: policy={self.family} chooses in Python what it keeps, which a "
                f"compiled graph does not run; use compile=none, or policy=ops or policy=budget"
            )

    def tolerance(self, cell: CellConfig) -> Tolerance | None:  # noqa: ARG002
        """None if the step is bitwise that of ``none`` wherever kernels are deterministic."""
        return None

    @abstractmethod
    def apply(self, model: "Decoder", blocks: Sequence[int]) -> Applied:
        """Change the model in place so that its forward keeps only what the policy keeps.

        Parameter names, the state dict and the modules' types stay as they are.

        Args:
            model: as built, or with another policy on other blocks.
            blocks: ascending indices of the blocks that the policy is for.
        """


def require_bool(key: str, value: object) -> None:
    """Raise UsageError unless ``value`` is true or false."""
    if not isinstance(value, bool):
        raise UsageError(key, value, "expected true or false")


def require_count(key: str, value: object) -> None:
    """Raise UsageError unless ``value`` is a whole number that is not negative."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError(key, value, "expected a whole number >= 0")

"""Stacked bars, one per policy: what plots.py and pictures.py draw of any split of bytes."""

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.style import OTHER_KIND_COLOUR, ByteUnit, byte_unit


@dataclass(frozen=True)
class Bar:
    """One bar: its name, its bytes by part, and a word that stands at its end."""

    name: str
    parts: Mapping[str, float]
    note: str

    @property
    def total(self) -> float:
        """The bar's length in bytes."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class StackedView:
    """Bars from top to bottom.

    Attributes:
        title: of the figure.
        axis: what a length is, without its unit.
        parts: every part in drawing order.
        colours: by part; a part without one gets a colour of its own.
        room: the axis over the longest bar: space for the notes.
    """

    title: str
    axis: str
    bars: tuple[Bar, ...]
    parts: tuple[str, ...]
    colours: Mapping[str, str]
    budget_bytes: int | None = None
    room: float = 1.3

    @property
    def unit(self) -> ByteUnit:
        """Of the axis."""
        return byte_unit([bar.total for bar in self.bars])

    @property
    def end(self) -> float:
        """Of the axis, in its unit."""
        return self.unit(max(bar.total for bar in self.bars)) * self.room

    def colour(self, part: str) -> str:
        """Of one part."""
        return self.colours.get(part, OTHER_KIND_COLOUR)

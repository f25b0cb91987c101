"""Colours, markers and words that every figure and table shares.

Colours are Okabe and Ito's (2008), told apart by people with any common colour blindness; vermillion
is kept for limits and failures, and no figure relies on colour alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from suite.summary import CellSummary

BLUE, SKY, GREEN = "#0072B2", "#56B4E9", "#009E73"
ORANGE, YELLOW, PURPLE, VERMILLION = "#E69F00", "#F0E442", "#CC79A7", "#D55E00"
GREY = "#8A8F98"

# Stand-ins that the page replaces by its own colours, so that figures follow light and dark.
INK, MUTED, GRID, PAPER = "#010203", "#010204", "#010205", "#010206"

KIND_COLOURS = {
    "parameter": BLUE,
    "gradient": SKY,
    "optimizer_state": GREY,
    "buffer": YELLOW,
    "batch": PURPLE,
    "activation": ORANGE,
    "recomputed": "#F6CF7F",  # a lighter activation: what was dropped and computed again
    "restored": "#FBE3B4",  # lighter still: back from the host, or in its own precision again
    "activation_gradient": GREEN,
    "workspace": "#6E4B2A",
}
# Attention in blues, the MLP in browns.
PART_COLOURS = {
    "residual stream": PURPLE,
    "norms": GREEN,
    "q, k, v": BLUE,
    "attention": SKY,
    "attention output": "#1F3A5F",
    "MLP up": ORANGE,
    "MLP activation": "#F6CF7F",
    "MLP down": "#6E4B2A",
    "MLP routing": "#B5654A",
    "head": GREY,
}
OTHER_KIND_COLOUR = "#8F7AC7"
PHASE_COLOURS = {"forward": SKY, "loss": YELLOW, "backward": ORANGE, "optimizer": GREEN}

STATUS_WORDS = {
    "oom": "out of memory",
    "wrong": "wrong gradients",
    "crash": "crashed",
    "timeout": "timed out",
    "noop": "no effect",
    "ok": "ok",
    "invalid": "invalid",
    "unsupported": "unsupported",
    "interrupted": "interrupted",
    "not measured": "not measured",
}

_FAMILY_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, GREY)
# The same shape under its plotly and its matplotlib name.
_SYMBOLS = (
    ("circle", "o"),
    ("square", "s"),
    ("diamond", "D"),
    ("triangle-up", "^"),
    ("triangle-down", "v"),
    ("pentagon", "p"),
    ("hexagon", "h"),
    ("star", "*"),
)
_DASHES = (("solid", "-"), ("dash", "--"), ("dot", ":"), ("dashdot", "-."))


@dataclass(frozen=True)
class PolicyStyle:
    """How one policy looks in every figure; names for plotly and for matplotlib."""

    colour: str
    symbol: str
    marker: str
    dash: str
    line: str


def policy_styles(cells: Sequence[CellSummary], reference: str) -> dict[str, PolicyStyle]:
    """Policy label to style: a colour per family, a marker and a dash per member of the family."""
    families: dict[str, list[str]] = {}
    for cell in cells:
        if cell.policy != reference:
            members = families.setdefault(str(cell.config["policy"]["family"]), [])
            if cell.policy not in members:
                members.append(cell.policy)
    styles = {reference: PolicyStyle(INK, "circle", "o", "solid", "-")}
    for i, members in enumerate(families.values()):
        for j, policy in enumerate(members):
            symbol, marker = _SYMBOLS[(i + j) % len(_SYMBOLS)]
            dash, line = _DASHES[j % len(_DASHES)]
            styles[policy] = PolicyStyle(
                _FAMILY_COLOURS[i % len(_FAMILY_COLOURS)], symbol, marker, dash, line
            )
    return styles


def short(name: str, most: int = 36) -> str:
    """``name`` for a figure, where a long one would push the data aside; tables have it in full."""
    return name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class ByteUnit:
    """The unit of an axis or a column: bytes are stored, one unit per figure is shown."""

    name: str
    factor: int

    def __call__(self, count: float) -> float:
        """``count`` bytes in this unit."""
        return count / self.factor

    def text(self, count: float | None) -> str:
        """``count`` bytes in this unit, without its name."""
        return "-" if count is None else f"{count / self.factor:,.1f}"


def byte_unit(counts: Sequence[float | None]) -> ByteUnit:
    """The largest unit in which the largest of ``counts`` is at least ten (one, for bytes)."""
    top = max((c for c in counts if c is not None), default=0)
    for name, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if top >= 10 * factor:
            return ByteUnit(name, factor)
    return ByteUnit("B", 1)

"""Where to write the names of points so that they do not cover each other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_CHARACTER, _LINE, _GAP, _NEAR = 6.2, 14.0, 9.0, 20.0
_PASSES = 3


@dataclass(frozen=True)
class Placed:
    """Offset of a label from its point in pixels, y upwards; ``align`` is left, right or center."""

    dx: float
    dy: float
    align: str

    @property
    def distance(self) -> float:
        """From the point to the near end of the label, in pixels."""
        return math.hypot(self.dx, self.dy)

    @property
    def leader(self) -> bool:
        """Whether the label is so far from its point that a line should lead to it."""
        return self.distance > _NEAR


_CANDIDATES = (
    Placed(_GAP, 0, "left"),
    Placed(-_GAP, 0, "right"),
    Placed(0, _GAP + 5, "center"),
    Placed(0, -_GAP - 5, "center"),
    *(
        Placed(s * 6, t * (_GAP + 5 + k), a)
        for k in (0, 14, 28)
        for t in (1, -1)
        for s, a in ((1, "left"), (-1, "right"))
    ),
)

Box = tuple[float, float, float, float]


def place_labels(
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    size: tuple[float, float],
    obstacles: Sequence[Box] = (),
) -> list[Placed]:
    """Choose one of several places per label, each in turn against the others, a few times over.

    Args:
        points: (x, y) in pixels from the lower left corner of a plot of ``size`` pixels.
        texts: the labels; an empty one takes no room, its point is still kept free.
        size: width and height of the plot in pixels.
        obstacles: boxes to keep clear where possible: (left, bottom, right, top) in pixels.
    """
    markers: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in points]
    chosen = [_CANDIDATES[0]] * len(points)
    taken: dict[int, Box] = {}
    for i in [i for _ in range(_PASSES) for i, text in enumerate(texts) if text]:
        others = [*markers[:i], *markers[i + 1 :], *(box for j, box in taken.items() if j != i)]
        boxes = [_box(points[i], texts[i], candidate) for candidate in _CANDIDATES]
        costs = [
            _outside(box, size)
            + 4 * sum(_shared(box, other) for other in others)
            + sum(_shared(box, line) for line in obstacles)
            + 2 * placed.distance
            for box, placed in zip(boxes, _CANDIDATES, strict=True)
        ]
        best = costs.index(min(costs))
        chosen[i], taken[i] = _CANDIDATES[best], boxes[best]
    return chosen


def _box(point: tuple[float, float], text: str, placed: Placed) -> Box:
    width = len(text) * _CHARACTER
    x, y = point[0] + placed.dx, point[1] + placed.dy
    left = {"left": x, "right": x - width, "center": x - width / 2}[placed.align]
    return left, y - _LINE / 2, left + width, y + _LINE / 2


def _shared(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0


def _outside(box: Box, size: tuple[float, float]) -> float:
    beyond = max(0.0, -box[0]) + max(0.0, box[2] - size[0])
    over = max(0.0, -box[1]) + max(0.0, box[3] - size[1])
    return beyond * _LINE * 3 + over * _LINE * 3

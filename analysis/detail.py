"""What explains a memory figure: the typed view of a memory or parity record's ``detail``.

Records are files that anyone may have written: what does not have the expected shape is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suite.record import Record

KINDS = (
    "parameter",
    "gradient",
    "optimizer_state",
    "buffer",
    "batch",
    "activation",
    "recomputed",
    "restored",
    "activation_gradient",
    "workspace",
)
PHASES = ("forward", "loss", "backward", "optimizer")


@dataclass(frozen=True)
class Tensor:
    """A storage that is alive at the peak; ``shape`` as text, ``bytes_`` counted once per storage."""

    bytes_: float
    kind: str
    name: str
    operator: str
    module: str
    shape: str
    dtype: str
    phase: str


def top_tensors(record: Record | None) -> list[Tensor]:
    """The largest tensors alive at the peak, largest first."""
    found = record.detail.get("top_tensors") if record else None
    tensors = [
        Tensor(
            bytes_=float(t["bytes"]),
            kind=_text(t.get("kind")),
            name=_text(t.get("name")),
            operator=_text(t.get("operator")),
            module=_text(t.get("module")),
            shape=_shape(t.get("shape")),
            dtype=_text(t.get("dtype")).removeprefix("torch."),
            phase=_text(t.get("phase")),
        )
        for t in (found if isinstance(found, list) else ())
        if isinstance(t, dict) and _is_number(t.get("bytes"))
    ]
    return sorted(tensors, key=lambda t: -t.bytes_)


def composition(record: Record | None) -> dict[str, float]:
    """Bytes alive at the peak by kind, known kinds first in a fixed order; empty if not recorded."""
    known = _numbers(record, "peak_composition")
    order = [kind for kind in KINDS if kind in known] + sorted(known.keys() - set(KINDS))
    return {kind: known[kind] for kind in order if known[kind] > 0}


def phase_peaks(record: Record | None) -> dict[str, float]:
    """Peak bytes inside each phase of the step, in the order of the step."""
    known = _numbers(record, "phase_peaks")
    return {phase: known[phase] for phase in PHASES if phase in known}


def live_bytes(record: Record | None) -> list[tuple[float, float, str]]:
    """Live memory over the step: (allocation event, bytes, phase)."""
    found = record.detail.get("live_bytes") if record else None
    return [
        (float(point[0]), float(point[1]), str(point[2]))
        for point in (found if isinstance(found, list) else ())
        if isinstance(point, list | tuple) and len(point) == 3 and all(map(_is_number, point[:2]))
    ]


def thin(series: list[tuple[float, float, str]], limit: int = 1200) -> list[tuple[float, float, str]]:
    """At most about ``limit`` points that keep every extreme, every change of phase and both ends."""
    if len(series) <= limit:
        return series
    width = -(-len(series) * 2 // limit)
    keep = {0, len(series) - 1}
    keep.update(i for i in range(1, len(series)) if series[i][2] != series[i - 1][2])
    for start in range(0, len(series), width):
        bucket = range(start, min(start + width, len(series)))
        keep.add(max(bucket, key=lambda i: series[i][1]))
        keep.add(min(bucket, key=lambda i: series[i][1]))
    return [series[i] for i in sorted(keep)]


@dataclass(frozen=True)
class Gradients:
    """What the parity pass found. ``judgement``: right, near (within tolerance), wrong or unknown."""

    judgement: str
    text: str
    largest: str = ""


def gradients(parity: Record | None) -> Gradients:
    """The verdict of a parity record, with the largest difference where gradients are not equal."""
    if parity is None:
        return Gradients("unknown", "-")
    if parity.status == "wrong":
        return Gradients("wrong", "WRONG", _largest(parity))
    if parity.status != "ok":
        return Gradients("unknown", "not compared")
    if parity.detail.get("bitwise") is True:
        return Gradients("right", "bitwise equal")
    return Gradients("near", "within tolerance", _largest(parity))


def _largest(parity: Record) -> str:
    relative = parity.figures.get("max_grad_rel_diff")
    if relative is not None:
        return f"relative difference {relative:.1e}"
    absolute = parity.figures.get("max_grad_abs_diff")
    return "" if absolute is None else f"difference {absolute:.1e}"


def _numbers(record: Record | None, name: str) -> dict[str, float]:
    found: Any = record.detail.get(name) if record else None
    items = found.items() if isinstance(found, Mapping) else ()
    return {str(key): float(value) for key, value in items if _is_number(value)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _shape(value: object) -> str:
    return (
        " \N{MULTIPLICATION SIGN} ".join(map(str, value))
        if isinstance(value, list | tuple)
        else _text(value)
    )

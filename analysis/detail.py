"""What explains a memory figure: the typed view of a memory or parity record's ``detail``.

Records are files that anyone may have written: what does not have the expected shape is left out.
"""

import math
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


@dataclass(frozen=True)
class KeptPlace:
    """What one operator made in the same place of every block and autograd kept."""

    place: str
    operator: str
    count: int
    bytes_: float


def kept_places(record: Record | None) -> list[KeptPlace]:
    """Everything that was alive when the forward ended because backward needs it, largest first."""
    places = [
        KeptPlace(
            _text(row.get("place")), _operator(row), int(_number(row, "count")), _number(row, "bytes")
        )
        for row in _rows(record, "kept")
    ]
    return sorted((p for p in places if p.bytes_ > 0), key=lambda p: -p.bytes_)


@dataclass(frozen=True)
class RanAgain:
    """One operator that replays ran in the same place of every block."""

    place: str
    operator: str
    calls: int
    flops: float


def ran_again(record: Record | None) -> list[RanAgain]:
    """Every operator that a replay ran, the most arithmetic first, then the most calls."""
    work = [
        RanAgain(
            _text(row.get("place")),
            _operator(row),
            int(_number(row, "replay_calls")),
            _number(row, "replay_flops"),
        )
        for row in _rows(record, "work")
    ]
    return sorted((w for w in work if w.calls > 0), key=lambda w: (-w.flops, -w.calls))


@dataclass(frozen=True)
class Rule:
    """One rule of a policy and what it did. None: not measured.

    Attributes:
        spared_flops: of the forward in its scope, what no replay ran again.
        replayed_flops: of the forward in its scope, the rest.
        host_bytes: moved to host memory.
    """

    name: str
    hits: int
    kept_bytes: float
    spared_flops: float | None = None
    replayed_flops: float | None = None
    host_bytes: float | None = None


def rules(memory: Record | None, flops: Record | None) -> list[Rule]:
    """The rules of a memory record with what the flops record says of the same ones."""
    # Rules of an assignment may share a name: they stand in the same order in both records.
    work: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(flops, "entries"):
        work.setdefault(_text(row.get("name")), []).append(row)
    found = []
    for row in _rows(memory, "entries"):
        name = _text(row.get("name"))
        same = work.get(name) or [{}]
        done = same.pop(0) if len(same) > 1 else same[0]
        found.append(
            Rule(
                name,
                int(_number(row, "hits")),
                _number(row, "kept_bytes"),
                _maybe(done, "spared_flops"),
                _maybe(done, "replayed_flops"),
                _maybe(row, "host_bytes"),
            )
        )
    return found


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


def _rows(record: Record | None, name: str) -> list[dict[str, Any]]:
    found: Any = record.detail.get(name) if record else None
    return [row for row in (found if isinstance(found, list) else ()) if isinstance(row, dict)]


def _number(row: Mapping[str, Any], name: str) -> float:
    return _maybe(row, name) or 0.0


def _maybe(row: Mapping[str, Any], name: str) -> float | None:
    value: Any = row.get(name)
    return float(value) if _is_number(value) and math.isfinite(value) else None


def _operator(row: Mapping[str, Any]) -> str:
    return _text(row.get("operator")).removeprefix("aten::")


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

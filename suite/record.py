"""The record of one (cell, pass, round): the truth that MLflow, Optuna and reports mirror.

A record is one JSON file. Every outcome is data: a pass that ran out of memory, timed out or
crashed has a record too. ``ok`` is only ever read back from a record that validates.

Schema 1, top level::

    schema       int                     version of this layout
    cell         16 hex digits           content address of ``config`` (suite.cell)
    workload     16 hex digits           the same without the policy
    pass         predict|memory|flops|parity|time
    round        int >= 0                0 but for the time pass
    config       object                  resolved CellConfig
    protocol     object                  how it was measured (steps, warm-up, threads, limits)
    code         object                  version, source digest, git revision
    fingerprint  object                  device, driver, torch, host
    status       one of schema.STATUSES
    figures      name -> finite number   names end in their unit: _bytes, _s, _flops, _count, _ratio
    detail       name -> any JSON        labels, tables and series that explain the figures; of a time
                                         pass also ``session``: which start of the program measured it
    warnings     list of text
    error        null or {type, message, where}
    started_at   ISO 8601, UTC
    wall_s       seconds from fork to end of the pass
"""

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from suite.config.schema import PASSES, STATUSES

SCHEMA = 1


class InvalidRecord(ValueError):
    """A file that is not a record this version can trust; the message says where and why."""


@dataclass(frozen=True)
class Record:
    """One outcome. Construct it freely; :func:`validate` decides whether it may be stored."""

    cell: str
    workload: str
    pass_: str
    round: int
    config: dict[str, Any]
    protocol: dict[str, Any]
    code: dict[str, Any]
    fingerprint: dict[str, Any]
    status: str
    figures: dict[str, float] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    error: dict[str, str] | None = None
    started_at: str = ""
    wall_s: float = 0.0
    schema: int = SCHEMA

    @property
    def key(self) -> "RecordKey":
        """Which (cell, pass, round) this is the record of."""
        return RecordKey(self.cell, self.pass_, self.round)

    @property
    def session(self) -> str:
        """Which start of the program measured a round; empty where the record does not say."""
        return str(self.detail.get("session") or "")

    def to_json(self) -> str:
        """The file's text. Raises ValueError on NaN or infinity: no such figure was measured."""
        data = asdict(self)
        data["pass"] = data.pop("pass_")
        return json.dumps(data, indent=1, allow_nan=False) + "\n"


@dataclass(frozen=True, order=True)
class RecordKey:
    """Identity of a record inside a sweep; its text is the file's name without ``.json``."""

    cell: str
    pass_: str
    round: int

    def __str__(self) -> str:
        return f"{self.cell}-{self.pass_}-{self.round:03d}"


# What an ``ok`` record of each pass must at least state.
REQUIRED_FIGURES: dict[str, tuple[str, ...]] = {
    "predict": ("peak_bytes", "static_bytes", "activation_bytes", "saved_bytes", "executed_flops"),
    "memory": ("peak_bytes", "static_bytes", "activation_bytes", "saved_bytes"),
    "flops": ("model_flops", "executed_flops", "recomputed_flops"),
    "parity": ("max_grad_abs_diff", "parameters_compared_count"),
    "time": ("step_time_s", "tokens_per_s", "steps_count"),
}


def validate(record: Record, where: str = "") -> None:
    """Raise :class:`InvalidRecord`, naming ``where``, unless complete and all figures finite numbers."""
    where = where or str(record.key)
    _require(record.schema == SCHEMA, where, f"schema {record.schema}, this version reads {SCHEMA}")
    _require(record.pass_ in PASSES, where, f"pass {record.pass_!r}, expected one of {PASSES}")
    _require(record.status in STATUSES, where, f"status {record.status!r}, expected one of {STATUSES}")
    _require(record.round >= 0, where, f"round {record.round} is negative")
    for name, value in record.figures.items():
        _require(_finite(value), where, f"figure {name} is {value!r}, expected a finite number")
    if record.status == "ok":
        missing = [f for f in REQUIRED_FIGURES[record.pass_] if f not in record.figures]
        _require(not missing, where, f"ok without the figures {', '.join(missing)}")
        _require(record.error is None, where, "ok with an error")
    else:
        _require(record.error is not None, where, f"{record.status} without an error that says why")


def parse(text: str, where: str) -> Record:
    """The record in a file's text; raises :class:`InvalidRecord` naming ``where`` if it is none."""
    try:
        data = json.loads(text)
    except ValueError as problem:
        raise InvalidRecord(f"{where}: not JSON: {problem}") from None
    _require(isinstance(data, dict), where, "not a JSON object")
    schema = data.get("schema")
    _require(schema == SCHEMA, where, f"schema {schema!r}, this version reads {SCHEMA}")
    expected = {(n if n != "pass_" else "pass"): t for n, t in _TYPES.items()}
    missing, unknown = expected.keys() - data.keys(), data.keys() - expected.keys()
    _require(not missing, where, f"lacks {', '.join(sorted(missing))}")
    _require(not unknown, where, f"has unknown {', '.join(sorted(unknown))}")
    for name, types in expected.items():
        right = isinstance(data[name], types) and not isinstance(data[name], bool)
        _require(right, where, f"{name} is {type(data[name]).__name__}")
    data["pass_"] = data.pop("pass")
    record = Record(**data)
    validate(record, where)
    return record


_TYPES: dict[str, tuple[type, ...]] = {
    "schema": (int,),
    "cell": (str,),
    "workload": (str,),
    "pass_": (str,),
    "round": (int,),
    "config": (dict,),
    "protocol": (dict,),
    "code": (dict,),
    "fingerprint": (dict,),
    "status": (str,),
    "figures": (dict,),
    "detail": (dict,),
    "warnings": (list,),
    "error": (dict, type(None)),
    "started_at": (str,),
    "wall_s": (int, float),
}


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _require(condition: bool, where: str, problem: str) -> None:
    if not condition:
        raise InvalidRecord(f"{where}: {problem}")

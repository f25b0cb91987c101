"""What MLflow shows of one cell: parameters, metrics, tags, note and artifacts from its summary.

Nothing here talks to MLflow, so that the mapping can be read and tested alone.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suite.record import Record
from suite.store import RecordStore
from suite.summary import CellSummary
from suite.tracking.series import thin
from suite.units import show_bytes

# Part of every digest: a new layout sends cells again that an older one has sent.
LAYOUT = 1

# MLflow allows 250, 6000 and 8000 characters; its older servers only 500 in a parameter and 5000 in a tag.
KEY_CHARACTERS, PARAM_CHARACTERS, TAG_CHARACTERS = 250, 500, 5000

# A point costs about 0.07 ms in sqlite; the record among the artifacts has the whole series.
SERIES_POINTS = 120

LARGEST_LOG_BYTES = 4 * 2**20

RUN_STATUS = {
    "ok": "FINISHED",
    "oom": "FINISHED",
    "noop": "FINISHED",
    "unsupported": "FINISHED",
    "crash": "FAILED",
    "wrong": "FAILED",
    "timeout": "FAILED",
    "invalid": "FAILED",
    "interrupted": "KILLED",
}

# Stepped metrics: step is the event's index, and the round.
MEMORY_SERIES, TIME_SERIES = "live_bytes", "step_time_s_by_round"

# Written last: a run that has it has the rest.
DIGEST_TAG = "suite.records_digest"

# Metrics that the cells measured later may change.
OF_THE_SWEEP = ("mfu_ratio", "hfu_ratio")
_FROM_SUMMARY = ("step_time_s", "tokens_per_s", *OF_THE_SWEEP)


@dataclass(frozen=True, order=True)
class Point:
    """One value of a metric; ``time_ms`` is Unix time."""

    key: str
    step: int
    value: float
    time_ms: int


@dataclass(frozen=True)
class CellRun:
    """The whole content of a cell's run. Two runs of equal ``digest`` show the same."""

    cell: str
    name: str
    digest: str
    status: str
    start_ms: int
    end_ms: int
    params: dict[str, str]
    points: tuple[Point, ...]
    tags: dict[str, str]
    records: tuple[Path, ...]
    logs: tuple[Path, ...]


def describe(summary: CellSummary, store: RecordStore) -> CellRun:
    """The run of one cell. Raises OSError if a record of the summary is not in ``store``."""
    records = tuple(store.record_path(r.key) for r in summary.records)
    logs, too_large = _logs(summary, store)
    digest = _digest(summary, records)
    spans = [_span_ms(r) for r in summary.records]
    return CellRun(
        cell=summary.cell,
        name=text(_name(summary), KEY_CHARACTERS),
        digest=digest,
        status=RUN_STATUS[summary.status],
        start_ms=min((start for start, _ in spans), default=0),
        end_ms=max((end for _, end in spans), default=0),
        params=_params(summary),
        points=tuple(_points(summary)),
        tags=_tags(summary, digest, too_large),
        records=records,
        logs=logs,
    )


def _name(summary: CellSummary) -> str:
    # The UI's lists cut a name after some 20 characters: what differs within a sweep comes first.
    length = f" s={summary.config['seq_len']} "
    return f"{summary.policy}{length}@ {summary.workload_label.replace(length, ' ', 1)}"


def _digest(summary: CellSummary, records: tuple[Path, ...]) -> str:
    said = [LAYOUT, summary.status, summary.reason, *(getattr(summary, name) for name in OF_THE_SWEEP)]
    found = hashlib.sha256("".join(f"{part}\n" for part in said).encode(errors="surrogatepass"))
    for path in records:
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _params(summary: CellSummary) -> dict[str, str]:
    config = {name: value for name, value in summary.config.items() if name != "policy"}
    config["model"] = {k: v for k, v in config["model"].items() if k != "source"}
    policy = summary.config["policy"]
    flat = {
        "policy": summary.policy,
        "policy.family": policy["family"],
        **dict(_flatten(policy["options"], "policy.")),
        **dict(_flatten(config)),
    }
    return {key(k): text(v, PARAM_CHARACTERS) for k, v in flat.items() if v not in (None, "")}


def _flatten(group: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in group.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _points(summary: CellSummary) -> Iterator[Point]:
    named: set[str] = set(_FROM_SUMMARY)
    for record in (summary.memory, summary.flops, summary.parity):
        if record is None:
            continue
        at_ms, _ = _span_ms(record)
        for name, value in record.figures.items():
            # Two passes may both state a figure of one name: neither may hide the other.
            metric = f"{record.pass_}.{name}" if name in named else name
            named.add(name)
            yield Point(key(metric), 0, float(value), at_ms)
    if summary.memory is not None:
        at_ms, _ = _span_ms(summary.memory)
        for index, live, _ in thin(summary.memory.detail.get(MEMORY_SERIES, ()), SERIES_POINTS):
            yield Point(MEMORY_SERIES, index, float(live), at_ms)
    rounds_ms = {r.round: _span_ms(r)[0] for r in summary.times}
    for round_, step_time_s in sorted(summary.rounds_s.items()):
        yield Point(TIME_SERIES, round_, step_time_s, rounds_ms[round_])
    # The newest value wins in MLflow, so a summary is as new as its newest record.
    latest_ms = max((_span_ms(r)[0] for r in summary.records), default=0)
    for name in _FROM_SUMMARY:
        figure = getattr(summary, name)
        if figure is not None:
            yield Point(name, 0, float(figure), latest_ms)


def _tags(summary: CellSummary, digest: str, too_large: tuple[Path, ...]) -> dict[str, str]:
    newest = max(summary.records, key=lambda r: r.started_at, default=None)
    fingerprint = newest.fingerprint if newest else {}
    code = newest.code if newest else {}
    tags = {
        "suite.kind": "cell",
        "suite.cell": summary.cell,
        "suite.workload": summary.workload,
        "suite.policy": summary.policy,
        "suite.model": summary.config["model"]["name"],
        "suite.model_source": summary.config["model"]["source"],
        "suite.status": summary.status,
        "suite.reason": summary.reason,
        "suite.peak_phase": summary.peak_phase,
        "suite.peak_flops_source": summary.peak_flops_source,
        "suite.device": fingerprint.get("name", summary.config["device"]),
        "suite.torch": fingerprint.get("torch"),
        "suite.version": code.get("version"),
        DIGEST_TAG: digest,
        "mlflow.note.content": _note(summary, too_large),
    }
    return {k: text(v, TAG_CHARACTERS) for k, v in tags.items() if v is not None}


def _note(summary: CellSummary, too_large: tuple[Path, ...]) -> str:
    lines = [f"**{summary.status}**" + (f": {summary.reason}" if summary.reason else "")]
    if summary.status == "ok" and not summary.proven:
        lines.append("gradients not compared")
    if summary.peak_bytes is not None:
        lines.append(f"peak {show_bytes(summary.peak_bytes)} in {summary.peak_phase or 'the step'}")
    lines += [f"- {warning}" for warning in dict.fromkeys(w for r in summary.records for w in r.warnings)]
    lines += [f"- `{path.name}` is too large to be an artifact" for path in too_large]
    return "\n\n".join(lines)


def _logs(summary: CellSummary, store: RecordStore) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    fit: list[Path] = []
    too_large: list[Path] = []
    for record in summary.records:
        path = store.log_path(record.key)
        size = path.stat().st_size if path.is_file() else 0
        if size:
            (fit if size <= LARGEST_LOG_BYTES else too_large).append(path)
    return tuple(fit), tuple(too_large)


def _span_ms(record: Record) -> tuple[int, int]:
    start_ms = unix_ms(record.started_at)
    return start_ms, start_ms + round(record.wall_s * 1e3)


def unix_ms(stamp: str) -> int:
    """Unix time of an ISO 8601 stamp, UTC where it names no zone; 0 if it is none."""
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1e3)


def key(name: str) -> str:
    """``name`` with the characters MLflow allows in names of parameters and metrics."""
    return re.sub(r"[^\w.\-]", "_", name, flags=re.ASCII)[:KEY_CHARACTERS]


def text(value: object, most: int) -> str:
    """``value`` as text that every store can hold: encodable, no NUL, at most ``most`` characters."""
    plain = str(value).lower() if isinstance(value, bool) else str(value)
    plain = plain.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"

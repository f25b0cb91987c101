"""The last words of a session: what was found, and where everything is."""

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TextIO

from runners.text_table import TextTable
from suite.paired import PairedRatio, step_time_ratio
from suite.summary import CellSummary, count_statuses
from suite.units import show_bytes, show_count, show_seconds

# The report and the records have them all; a terminal does not want to.
_MOST_ROWS = 80
# Cells that are predicted not to fit, beyond which they are only counted.
_MOST_PREDICTED = 3
_HEADERS = ("policy", "seq_len", "status", "peak", "saved", "step", "step vs {}", "recomputed")
RESULTS = ("ok", "oom", "noop", "unsupported")


class Places(Protocol):
    """Where results can be looked at besides the report."""

    def where(self) -> str:
        """Lines for a person: the store, and the command that opens it."""


def exit_code(summaries: Mapping[str, CellSummary], expected: int, state: str) -> int:
    """130 when interrupted; 5 when a cell has no verdict that is a result; else 0."""
    if state == "interrupted":
        return 130
    results = sum(summary.status in RESULTS for summary in summaries.values())
    return 0 if results == expected else 5


def print_closing(
    summaries: Sequence[CellSummary],
    *,
    reference: str,
    root: Path,
    page: Path | None,
    tracker: Places,
    out: TextIO | None = None,
) -> None:
    """Print the verdicts of ``summaries`` in their order, and where they come from.

    One cell, alone or beside its reference, is answered in a few lines; more make a table.
    """
    stream = out if out is not None else sys.stdout
    stream.write("\n")
    asked = [s for s in summaries if s.policy != reference]
    if len(summaries) == 1:
        stream.write(_answer(summaries[0], None))
    elif len(summaries) == 2 and len(asked) == 1 and len({s.workload for s in summaries}) == 1:
        stream.write(_answer(asked[0], next(s for s in summaries if s.policy == reference)))
    else:
        _print_tables(summaries, reference, stream)
    lines = [("records", f"{root / 'records'}")]
    if page is not None:
        lines.append(("report", f"{page}"))
    stream.write("\n" + "".join(f"{name:<9}{value}\n" for name, value in lines))
    for number, line in enumerate(tracker.where().splitlines()):
        stream.write(f"{'tracking' if not number else '':<9}{line}\n")
    stream.flush()


def _answer(summary: CellSummary, reference: CellSummary | None) -> str:
    lines = [
        ("policy", summary.policy),
        ("workload", summary.workload_label),
        ("status", _status(summary).replace("*", ", gradients not compared") + _because(summary)),
        *_assumed(summary),
    ]
    if summary.peak_bytes is not None:
        phase = f" in {summary.peak_phase}" if summary.peak_phase else ""
        against = _against(reference, "peak_bytes", show_bytes)
        lines.append(("peak", show_bytes(summary.peak_bytes) + phase + against))
        against = _against(reference, "saved_bytes", show_bytes)
        lines.append(("saved", f"{show_bytes(summary.saved_bytes)} for backward{against}"))
    if summary.model_flops is not None:
        recomputed = f", of which {_flop(summary.recomputed_flops)} recomputed"
        lines.append(("executed", f"{_flop(summary.executed_flops)} a step{recomputed}"))
    if summary.step_time_s is not None:
        ratio = step_time_ratio(summary, reference) if reference else None
        spread = f", median of {len(summary.rounds_s)} rounds" if len(summary.rounds_s) > 1 else ""
        rate = f", {summary.tokens_per_s:,.0f} tokens/s" if summary.tokens_per_s is not None else ""
        versus = f", {ratio.text} against {reference.policy}" if ratio is not None and reference else ""
        lines.append(("step", show_seconds(summary.step_time_s) + spread + rate + versus))
    off = summary.prediction_errors.get("peak_bytes")
    if off is not None:
        equal = "equal to the measured one" if not off else f"off by {show_bytes(abs(off))}"
        lines.append(("predicted", f"peak {equal}"))
    return "".join(f"{name:<10}{value}\n" for name, value in lines)


def _status(summary: CellSummary) -> str:
    """``ok*`` where nothing has proven that the gradients are right; ``fits`` where nothing has run."""
    if summary.predicted and summary.status == "ok":
        return "fits"
    return "ok*" if summary.status == "ok" and not summary.proven else summary.status


def _predictions(summaries: Sequence[CellSummary]) -> str:
    """What was predicted: all there is, or how far it was from what was then measured."""
    lines = []
    if any(s.predicted for s in summaries):
        lines.append("cells that fit, or do not by a prediction, were predicted and did not run\n")
    compared = [s.prediction_errors for s in summaries if "peak_bytes" in s.prediction_errors]
    if compared:
        exact = sum(not errors["peak_bytes"] for errors in compared)
        worst = max(abs(errors["peak_bytes"]) for errors in compared)
        off = f"; the largest difference is {show_bytes(worst)}" if worst else ""
        lines.append(f"predicted peak equal to the measured one in {exact} of {len(compared)} cells{off}\n")
    timed = [
        abs(s.prediction_errors["step_time_s"]) / s.step_time_s
        for s in summaries
        if s.step_time_s and "step_time_s" in s.prediction_errors
    ]
    if timed:
        lines.append(
            f"predicted step time off by {statistics.median(timed):.1%} in the median, "
            f"{max(timed):.1%} at most\n"
        )
    return "".join(lines)


def _because(summary: CellSummary) -> str:
    return f": {summary.reason}" if summary.reason else ""


def _assumed(summary: CellSummary) -> list[tuple[str, str]]:
    """The assumptions behind a prediction, where that is all there is."""
    known = summary.predict.detail.get("assumptions", {}) if summary.predict and summary.predicted else {}
    rows = []
    for number, (name, fact) in enumerate(known.items()):
        value = fact["value"]
        if name == "rates":
            continue  # many; the record has them
        shown = show_bytes(value) if name.endswith("_bytes") else value or "auto"
        rows.append(("assuming" if not number else "", f"{name}={shown} ({fact['source']})"))
    return rows


def _flop(count: float | None) -> str:
    """``1.25 GFLOP``, ``0 FLOP``."""
    text = show_count(count)
    return f"{text}FLOP" if text[-1:].isalpha() else f"{text} FLOP"


def _against(reference: CellSummary | None, name: str, show: Callable[[float], str]) -> str:
    value = getattr(reference, name, None)
    return f" ({reference.policy}: {show(value)})" if reference is not None and value is not None else ""


def _print_tables(summaries: Sequence[CellSummary], reference: str, out: TextIO) -> None:
    if len(summaries) <= _MOST_ROWS:
        references = {s.workload: s for s in summaries if s.policy == reference}
        groups: dict[str, list[CellSummary]] = {}
        for summary in summaries:
            groups.setdefault(_without_length(summary), []).append(summary)
        for title, group in groups.items():
            rows = [_row(s, references.get(s.workload)) for s in sorted(group, key=_length)]
            headers = [header.format(reference) for header in _HEADERS]
            TextTable(title, headers, rows, spare=("recomputed", "saved")).print(out)
            out.write("\n")
        told = [s for s in summaries if s.status not in ("ok", "unsupported")]
        most = _MOST_PREDICTED if all(s.predicted for s in told) else len(told)
        for summary in told[:most]:
            name = f"{summary.policy}, {summary.workload_label}"
            out.write(f"{summary.status}: {name}: {summary.reason.partition(chr(10))[0]}\n")
        if told[most:]:
            out.write(f"and {len(told) - most} more that are predicted not to fit\n")
    unproven = sum(_status(summary) == "ok*" for summary in summaries)
    out.write(_predictions(summaries))
    if unproven and len(summaries) <= _MOST_ROWS:
        out.write("* gradients not compared: no parity pass\n")
    counts = ", ".join(f"{n} {s}" for s, n in count_statuses({s.cell: s for s in summaries}).items())
    # The count of ok comes last, as the best status of all.
    without = f" ({unproven} of them without parity)" if unproven else ""
    out.write(f"{len(summaries)} cells: {counts}{without}\n")


def _length(summary: CellSummary) -> int:
    return int(summary.config["seq_len"])


def _without_length(summary: CellSummary) -> str:
    words = summary.workload_label.split()
    return " ".join(word for word in words if not word.startswith("s="))


def _row(summary: CellSummary, reference: CellSummary | None) -> list[str]:
    recomputed = summary.recomputed_flops
    return [
        summary.policy,
        str(_length(summary)),
        _status(summary),
        show_bytes(summary.peak_bytes),
        show_bytes(summary.saved_bytes),
        show_seconds(summary.step_time_s),
        _ratio(summary, reference),
        show_count(recomputed),
    ]


def _ratio(summary: CellSummary, reference: CellSummary | None) -> str:
    if reference is not None and reference.cell == summary.cell:
        return "reference"
    found: PairedRatio | None = step_time_ratio(summary, reference) if reference else None
    return found.brief if found else "-"

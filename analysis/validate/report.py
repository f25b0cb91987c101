"""Errors by source and by policy, fits, refusals, what is not modelled, and the worst rows, as tables."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.validate.case import Case, Outcome, Unmodelled, rows_by_outcome
from analysis.validate.score import FITS, OVER, UNSURE, Score
from suite.units import show_bytes

_MEMORY_FIGURES = {
    "static_bytes": "static memory",
    "peak_allocated_bytes": "peak memory",
    "reserved_bytes": "reserved memory",
}
_FIGURES = {
    "memory_difference": "change of peak",
    "time_ratio": "step time ratio",
    "activation_formula": "kept by blocks",
}


@dataclass(frozen=True)
class Sheet:
    """A table of plain text: ``heads`` that start with ``>`` are over numbers."""

    title: str
    heads: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Spread:
    """How errors of one kind are spread; ``median`` and ``p90`` are of their absolute values.

    ``p90`` is the smallest of them that nine tenths do not exceed. ``bias`` is the median with its sign,
    ``unit`` percent or points, ``configs_count`` the number of different questions behind the ``count``.
    """

    count: int
    configs_count: int
    median: float
    p90: float
    bias: float
    worst: float
    worst_row: str
    unit: str


@dataclass(frozen=True)
class Report:
    """What became of all rows that were looked at."""

    outcomes: Sequence[Outcome]
    scores: Sequence[Score]


def figure_of(case: Case) -> str:
    """What kind of figure a case compares, in words: ``peak memory``."""
    if case.kind == "memory":
        return _MEMORY_FIGURES.get(case.metric, case.metric)
    return _FIGURES.get(case.kind, case.kind)


def spread_of(scores: Sequence[Score]) -> Spread | None:
    """Of the scores that have an error; None if none has."""
    known = [(s, s.error) for s in scores if s.error is not None]
    if not known:
        return None
    sizes = sorted(abs(error) for _, error in known)
    worst, error = max(known, key=lambda pair: abs(pair[1]))
    return Spread(
        count=len(known),
        configs_count=len({_question(score) for score, _ in known}),
        median=statistics.median(sizes),
        p90=sizes[math.ceil(0.9 * len(sizes)) - 1],
        bias=statistics.median(error for _, error in known),
        worst=error,
        worst_row=worst.case.row_id,
        unit="points" if worst.case.in_points else "%",
    )


def sheets_of(report: Report, *, worst: int, verbose: bool = False) -> list[Sheet]:
    """Every table that has a line, in the order of reading; ``worst`` rows at most are listed."""
    sheets = [
        _spreads("Errors by source", "source", report.scores, lambda s: s.case.source),
        _spreads("Errors by policy", "policy", report.scores, lambda s: s.case.policy),
        _fits(report.scores),
        _worst(report.scores, worst),
        _refused(report.scores),
        _unmodelled(report.outcomes, verbose=verbose),
    ]
    return [sheet for sheet in sheets if sheet.lines]


def counts_sentence(report: Report) -> str:
    """How many rows became what."""
    by = {name: len(rows) for name, rows in rows_by_outcome(report.outcomes).items()}
    cases = sum(isinstance(o, Case) for o in report.outcomes)
    asked = "" if len(report.scores) == cases else f", {len(report.scores)} of them asked"
    return (
        f"{sum(by.values())} rows: {by['case']} predicted ({cases} figures{asked}), "
        f"{by['partner']} that only others are compared with, {by['unmodelled']} not modelled."
    )


def json_of(report: Report) -> dict[str, Any]:
    """Everything: counts, spreads by source and policy and half, every score, every reason."""
    groups: dict[str, list[dict[str, Any]]] = {}
    keys = {"by_source": lambda s: s.case.source, "by_policy": lambda s: s.case.policy}
    for name, key in keys.items():
        groups[name] = [
            {"name": of, "figure": figure, "half": half, **asdict(spread)}
            for (of, figure), scores in _grouped(report.scores, key).items()
            for half in ("all", "A", "B")
            if (spread := spread_of(_of_half(scores, half)))
        ]
    rows = {name: len(found) for name, found in rows_by_outcome(report.outcomes).items()}
    unmodelled = [asdict(o) for o in report.outcomes if isinstance(o, Unmodelled)]
    return {"rows": rows, **groups, "scores": list(map(_plain, report.scores)), "unmodelled": unmodelled}


def _plain(score: Score) -> dict[str, Any]:
    told = asdict(score)
    case: dict[str, Any] = told.pop("case")
    del case["requests"]
    return case | told | {"figure": figure_of(score.case)}


def _question(score: Score) -> str:
    return json.dumps([score.case.kind, score.case.metric, score.case.requests], sort_keys=True)


def _of_half(scores: Sequence[Score], half: str) -> list[Score]:
    return [score for score in scores if half in ("all", score.half)]


def _grouped(scores: Sequence[Score], key: Callable[[Score], str]) -> dict[tuple[str, str], list[Score]]:
    groups: dict[tuple[str, str], list[Score]] = {}
    for score in scores:
        if score.error is not None:
            groups.setdefault((key(score), figure_of(score.case)), []).append(score)
    return groups


def _spreads(title: str, first: str, scores: Sequence[Score], key: Callable[[Score], str]) -> Sheet:
    lines = []
    for (name, figure), mine in _grouped(scores, key).items():
        halves = [spread_of(_of_half(mine, half)) for half in "AB"]
        spread = spread_of(mine)
        assert spread is not None
        medians = [f"{half.median:.1f} ({half.count})" if half else "-" for half in halves]
        lines.append(
            (
                name,
                figure,
                spread.unit,
                str(spread.count),
                str(spread.configs_count),
                f"{spread.median:.1f}",
                f"{spread.p90:.1f}",
                f"{spread.bias:+.1f}",
                *medians,
                f"{spread.worst:+.1f}",
                spread.worst_row,
            )
        )
    heads = (first, "figure", "unit", ">n", ">configs", ">median", ">p90", ">bias", ">half A", ">half B")
    return Sheet(title, (*heads, ">worst", "its row"), tuple(sorted(lines)))


def _fits(scores: Sequence[Score]) -> Sheet:
    counts: Counter[tuple[str, float, str]] = Counter()
    for score in scores:
        if score.verdict:
            counts[score.case.source, score.case.expected, score.verdict] += 1
    found = sorted({(source, expected) for source, expected, _ in counts})
    lines = tuple(
        (
            source,
            "ran" if expected else "out of memory",
            *(str(counts[source, expected, v]) for v in _VERDICTS),
        )
        for source, expected in found
    )
    return Sheet("Does it fit", ("source", "in fact", *(f">{verdict}" for verdict in _VERDICTS)), lines)


_VERDICTS = (FITS, UNSURE, OVER)


def _worst(scores: Sequence[Score], most: int) -> Sheet:
    """One line for a question, however many rows ask it; points and percents are ranked alike."""
    by_question: dict[str, list[Score]] = {}
    for score in scores:
        if score.error is not None:
            by_question.setdefault(_question(score), []).append(score)
    tops = [(max(mine, key=lambda s: abs(s.error or 0.0)), len(mine)) for mine in by_question.values()]
    tops.sort(key=lambda top: -abs(top[0].error or 0.0))
    lines = []
    for score, count in tops[:most]:
        unit = "points" if score.case.in_points else "%"
        lines.append(
            (
                score.case.row_id + (f" and {count - 1} more" if count > 1 else ""),
                score.case.policy,
                figure_of(score.case),
                _shown(score.case, score.case.expected),
                _shown(score.case, score.predicted),
                f"{score.error:+.1f} {unit}",
                score.case.caveat or "-",
            )
        )
    heads = ("row", "policy", "figure", ">published", ">predicted", ">error", "why it might be off")
    return Sheet("The worst", heads, tuple(lines))


def _shown(case: Case, value: float | None) -> str:
    if value is None or case.in_points:
        return "-" if value is None else f"{value:.3f}"
    return show_bytes(value)


def _refused(scores: Sequence[Score]) -> Sheet:
    words: dict[str, list[str]] = {}
    for score in scores:
        if score.refused:
            words.setdefault(score.refused, []).append(score.case.row_id)
    ordered = sorted(words.items(), key=lambda item: -len(item[1]))
    lines = tuple((str(len(rows)), reason, rows[0]) for reason, rows in ordered)
    return Sheet("Refused by the predictor", (">figures", "its words", "a row"), lines)


def _unmodelled(outcomes: Sequence[Outcome], *, verbose: bool) -> Sheet:
    reasons: dict[tuple[str, str], list[str]] = {}
    # A row of which one figure is predicted is not listed for another that is not.
    left = rows_by_outcome(outcomes)["unmodelled"]
    for outcome in outcomes:
        if isinstance(outcome, Unmodelled) and outcome.row_id in left:
            reasons.setdefault((outcome.source, outcome.reason), []).append(outcome.row_id)
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    lines = tuple(
        (str(len(rows)), source, reason, *([_named(rows)] if verbose else []))
        for (source, reason), rows in ordered
    )
    heads = (">rows", "source", "why it is not modelled", *(["which"] if verbose else []))
    return Sheet("Not modelled", heads, lines)


def _named(rows: Sequence[str]) -> str:
    """``000, 003, 004`` of one source."""
    return ", ".join(row.rsplit("-", 1)[1] for row in rows)

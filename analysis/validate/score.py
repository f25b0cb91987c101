"""What is predicted of every case, and how far it is from what was published."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.predictor import PredictMany
from analysis.validate.case import Answer, Case, Request, tokens_of
from analysis.validate.rows import half_of

RESERVED = "reserved_bytes"
# The verdicts of ``fits``: the interval of reserved bytes is below the card's memory, above it, or astride.
FITS, OVER, UNSURE = "fits", "does not fit", "unsure"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Score:
    """One case and what became of it.

    Attributes:
        half: A or B, fixed by the row.
        predicted: in the unit of the case's ``expected``; None if the predictor refused. For the interval
            of reserved bytes, its point nearest to what was measured.
        error: of memory in percent of the published figure, of a ratio in points (hundredths of it).
        verdict: of ``fits``.
        interval_bytes: of reserved bytes, lower and upper end.
        refused: the predictor's words.
    """

    case: Case
    half: str
    predicted: float | None = None
    error: float | None = None
    verdict: str = ""
    interval_bytes: tuple[float, float] | None = None
    refused: str = ""


def score_cases(
    cases: Sequence[Case], predict: PredictMany, progress: Progress | None = None
) -> list[Score]:
    """Every case scored, in order; a request that several of them make is asked once.

    ``progress`` is called with the number of requests answered and of all.
    """
    asked = {_key(request): request for case in cases for request in case.requests}
    keys, answers = list(asked), {}
    for done, (position, answer) in enumerate(predict(list(asked.values())), 1):
        answers[keys[position]] = answer
        if progress:
            progress(done, len(asked))
    return [_score(case, [answers[_key(request)] for request in case.requests]) for case in cases]


def _key(request: Request) -> str:
    return json.dumps(request, sort_keys=True)


class _Refused(Exception):
    """The predictor has no such figure."""


def _score(case: Case, answers: Sequence[Answer]) -> Score:
    half = half_of(case.row_id)
    try:
        if case.kind == "fits":
            low, high = _interval(answers[0])
            verdict = FITS if high <= case.capacity_bytes else OVER if low > case.capacity_bytes else UNSURE
            return Score(case, half, verdict=verdict, interval_bytes=(low, high))
        if case.metric == RESERVED:
            low, high = _interval(answers[0])
            nearest = min(max(case.expected, low), high)
            return Score(case, half, nearest, _error(case, nearest), interval_bytes=(low, high))
        pairs = zip(case.requests, answers, strict=True)
        predicted = _combined(case, [_figure(case, asked, answer) for asked, answer in pairs])
    except _Refused as refusal:
        return Score(case, half, refused=str(refusal))
    return Score(case, half, predicted, _error(case, predicted))


def _figures(answer: Answer) -> dict[str, float]:
    if "figures" not in answer:
        raise _Refused(str(answer.get("error", "neither figures nor an error")))
    found: dict[str, float] = answer["figures"]
    return found


def _interval(answer: Answer) -> tuple[float, float]:
    figures = _figures(answer)
    for names in (("reserved_low_bytes", "reserved_high_bytes"), ("peak_allocated_bytes",) * 2):
        if all(figures.get(name) is not None for name in names):
            return figures[names[0]], figures[names[1]]
    raise _Refused("no figure of reserved bytes")


def _figure(case: Case, asked: Request, answer: Answer) -> float:
    value = _figures(answer).get(case.metric)
    if value is None:
        raise _Refused(f"no figure {case.metric}")
    return value / tokens_of(asked) if case.per_token else value


def _combined(case: Case, values: Sequence[float]) -> float:
    if len(values) == 1:
        return values[0]
    if len(values) == 4:
        return _over(values[0] - values[1], values[2] - values[3])
    if case.kind == "time_ratio":
        return _over(values[0], values[1])
    return (values[0] - values[1]) * case.scale


def _over(upper: float, lower: float) -> float:
    if not lower:
        raise _Refused("a ratio over nothing")
    return upper / lower


def _error(case: Case, predicted: float) -> float:
    gap = predicted - case.expected
    return 100 * gap if case.in_points else 100 * gap / abs(case.expected)

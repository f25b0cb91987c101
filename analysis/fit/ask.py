"""The searches of all policies side by side, so that every predictor process has something to do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.fit.point import Point, point_of
from analysis.fit.question import Question
from analysis.fit.search import Found, Search, search, turned_between
from analysis.predictor import PredictMany
from suite.config.schema import PolicyConfig

# Answered and asked so far; how many there will be is known only at the end.
Progress = Callable[[int, int], None]
_REFERENCE = PolicyConfig("none")
# Columns of the heat map.
_MOST_COLUMNS = 9


@dataclass(frozen=True)
class Outcome:
    """One policy and what became of its search.

    Attributes:
        label: as reports name it.
        refused: why it cannot apply; then nothing is asked.
        best: the largest value that fits, if any.
        beyond: one step beyond it, which was asked and does not fit; None at the bound of the axis.
        turned: neighbouring asked values (A, B), A < B, of which A needs more.
        step_ratio: predicted step time over that of ``none`` at the same value, whether or not it fits.
        points: every one that was asked, by value.
    """

    policy: PolicyConfig
    label: str
    refused: str = ""
    best: Point | None = None
    beyond: Point | None = None
    turned: tuple[tuple[int, int], ...] = ()
    step_ratio: float | None = None
    points: tuple[Point, ...] = ()

    @property
    def lowest(self) -> Point | None:
        """The predicted point of the smallest value."""
        return next((point for point in self.points if point.spare_bytes is not None), None)


@dataclass(frozen=True)
class Fit:
    """The answer to a question.

    Attributes:
        outcomes: of every policy in the order of the question.
        columns: values at which every policy was asked: those of the heat map, if there is one.
        asked: how many points.
    """

    question: Question
    outcomes: tuple[Outcome, ...]
    columns: tuple[int, ...]
    asked: int

    @property
    def fitting(self) -> list[Outcome]:
        """Those of which some value fits, the largest first and among equals the fastest."""
        found = [outcome for outcome in self.outcomes if outcome.best is not None]
        return sorted(found, key=_rank)


class Asker:
    """Points by policy and value; what was asked is not asked again."""

    def __init__(self, question: Question, predict: PredictMany, progress: Progress | None = None) -> None:
        self._question, self._predict, self._progress = question, predict, progress
        self._known: dict[tuple[str, int], Point] = {}
        self._total = 0

    @property
    def asked(self) -> int:
        """How many points are known."""
        return len(self._known)

    def points(self, policy: PolicyConfig) -> tuple[Point, ...]:
        """Those of one policy, by value."""
        label = self._question.label(policy)
        found = [point for (name, _), point in self._known.items() if name == label]
        return tuple(sorted(found, key=lambda point: point.value))

    def ask(self, wanted: Sequence[tuple[PolicyConfig, int]]) -> list[Point]:
        """The points of ``wanted``, in order; several are predicted at once."""
        keys = [(self._question.label(policy), value) for policy, value in wanted]
        fresh = {k: w for k, w in zip(keys, wanted, strict=True) if k not in self._known}
        names, before = list(fresh), self.asked
        self._total = before + len(fresh)
        requests = [self._question.request(policy, value) for policy, value in fresh.values()]
        for position, answer in self._predict(requests):
            key = names[position]
            self._known[key] = point_of(key[1], answer, self._question.limits)
            if self._progress:
                self._progress(self.asked, self._total)
        return [self._known[key] for key in keys]


def answer_fit(
    question: Question,
    predict: PredictMany,
    progress: Progress | None = None,
    *,
    mapped: bool = True,
) -> Fit:
    """Search every policy's largest value that fits, then what a table needs beside.

    Args:
        question: what is asked.
        predict: answers requests.
        progress: called with the points answered, and those asked so far.
        mapped: ask every policy at the columns of a heat map too.
    """
    asker = Asker(question, predict, progress)
    refusals = [question.refusal(policy) for policy in question.policies]
    able = [p for p, reason in zip(question.policies, refusals, strict=True) if not reason]
    founds = dict(zip(map(question.label, able), _searched(question, able, asker), strict=True))
    able = [policy for policy in able if not founds[question.label(policy)].refused]
    columns = _columns(question, [founds[question.label(policy)] for policy in able]) if mapped else []
    asker.ask([(policy, value) for policy in able for value in columns])
    references = _references(able, founds, asker)
    # What was asked beside may lie below an answer and not fit: then there is more to search.
    while broken := [
        policy for policy in able if _is_broken(founds[question.label(policy)], asker.points(policy))
    ]:
        founds |= zip(map(question.label, broken), _searched(question, broken, asker), strict=True)
        references = _references(able, founds, asker)
    outcomes = []
    for policy, reason in zip(question.policies, refusals, strict=True):
        label = question.label(policy)
        found = founds.get(label)
        if found is None or found.refused:
            outcomes.append(Outcome(policy, label, refused=reason or (found.refused if found else "")))
            continue
        points = asker.points(policy)
        ratio = _ratio(found.best, references)
        turned = turned_between(points)
        outcomes.append(Outcome(policy, label, "", found.best, found.beyond, turned, ratio, points))
    return Fit(question, tuple(outcomes), tuple(columns), asker.asked)


def _searched(question: Question, policies: Sequence[PolicyConfig], asker: Asker) -> list[Found]:
    axis = (question.start, question.step, question.most)
    searches: list[Search] = [search(*axis, asker.points(policy)) for policy in policies]
    wanted: dict[int, int] = {}
    found: dict[int, Found] = {}

    def proceed(i: int, point: Point | None) -> None:
        try:
            wanted[i] = next(searches[i]) if point is None else searches[i].send(point)
        except StopIteration as end:
            found[i] = end.value

    for i in range(len(searches)):
        proceed(i, None)
    while wanted:
        places = list(wanted)
        points = asker.ask([(policies[i], wanted[i]) for i in places])
        wanted.clear()
        for i, point in zip(places, points, strict=True):
            proceed(i, point)
    return [found[i] for i in range(len(policies))]


def _columns(question: Question, founds: Sequence[Found]) -> list[int]:
    """The start doubled and halved, around the answers of all policies."""
    bests = [found.best.value for found in founds if found.best is not None]
    if not founds or not bests:
        return [question.step] if founds else []
    low, high = min(bests), max(bests)
    values = [value for value in _ladder(question) if low / 2 <= value <= 2 * high]
    if len(values) > _MOST_COLUMNS:
        every = -(-len(values) // _MOST_COLUMNS)
        values = values[::-1][::every][::-1]
    return values


def _ladder(question: Question) -> list[int]:
    """The values that a search doubles through, and below them halves of the start."""
    down = [question.start]
    while down[-1] > question.step:
        down.append(max(question.step, down[-1] // 2 // question.step * question.step))
    up = [question.start]
    while up[-1] < question.most:
        up.append(min(question.most, 2 * up[-1]))
    return sorted({*down, *up})


def _references(able: Sequence[PolicyConfig], founds: dict[str, Found], asker: Asker) -> dict[int, Point]:
    """``none`` at every answer, where it is among the policies."""
    if _REFERENCE not in able:
        return {}
    bests = {found.best.value for found in founds.values() if found.best is not None}
    # A device without rates has no times to compare.
    timed = any("step_time_s" in f.best.figures for f in founds.values() if f.best is not None)
    if not timed:
        return {}
    values = sorted(bests)
    return dict(zip(values, asker.ask([(_REFERENCE, value) for value in values]), strict=True))


def _is_broken(found: Found, points: Sequence[Point]) -> bool:
    return found.best is not None and any(p.value < found.best.value and not p.fits for p in points)


def _ratio(best: Point | None, references: dict[int, Point]) -> float | None:
    if best is None or best.value not in references:
        return None
    own, other = best.figures.get("step_time_s"), references[best.value].figures.get("step_time_s")
    return own / other if own is not None and other else None


def _rank(outcome: Outcome) -> tuple[int, float]:
    assert outcome.best is not None
    return -outcome.best.value, outcome.best.figures.get("step_time_s", 0.0)

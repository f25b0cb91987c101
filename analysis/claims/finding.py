"""What a claim is, what judging it gives, and how its cells are found."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from suite.cell import canonical
from suite.paired import PairedRatio, step_time_ratio
from suite.summary import CellSummary

HOLDS, IN_PART, NOT_HERE = "holds", "in part", "not here"
# The interval is too wide to tell, or the cells are not there.
TOO_NOISY, NOT_MEASURED = "too noisy", "not measured"


@dataclass(frozen=True)
class Judgement:
    """``verdict`` is one of the words above; ``why`` explains it in a sentence."""

    verdict: str
    measured: str = ""
    why: str = ""


@dataclass(frozen=True)
class Claim:
    """A quantitative statement about recomputation.

    Attributes:
        name: a short identifier.
        statement: in words.
        source: where it is made.
        expected: what should be measured if it holds.
        judge: from the cells of a sweep, whatever they are, to the judgement.
    """

    name: str
    statement: str
    source: str
    expected: str
    judge: Callable[[Sequence[CellSummary]], Judgement]


def groups(cells: Iterable[CellSummary], *varying: str) -> list[list[CellSummary]]:
    """Cells that agree on all but the policy and the ``varying`` keys (``seq_len``, ``model.n_layers``).

    A model's name and source tell nothing that its shape does not.
    """
    found: dict[str, list[CellSummary]] = {}
    for cell in cells:
        found.setdefault(canonical(_rest(cell.config, varying)), []).append(cell)
    return list(found.values())


def _rest(config: dict[str, Any], varying: Sequence[str]) -> dict[str, Any]:
    rest = {k: dict(v) if isinstance(v, dict) else v for k, v in config.items() if k != "policy"}
    for key in ("model.source", "model.name", *varying):
        group, _, name = key.rpartition(".")
        (rest[group] if group else rest).pop(name, None)
    return rest


def by_policy(cells: Iterable[CellSummary]) -> dict[str, CellSummary]:
    """Label to cell; for the cells of one workload."""
    return {cell.policy: cell for cell in cells}


def shape(cell: CellSummary) -> str:
    """``llama_micro, 12 blocks, 512 tokens, sdpa``."""
    config = cell.config
    model = config["model"]
    return (
        f"{model['name']}, {model['n_layers']} blocks, {config['seq_len']:,} tokens, {config['attention']}"
    )


def step_time(cell: CellSummary, reference: CellSummary) -> PairedRatio | None:
    """Step time against ``reference`` over the rounds that one session measured of both."""
    return step_time_ratio(cell, reference)


def extra_flops(cell: CellSummary) -> float | None:
    """Recomputed FLOPs as a share of the model's."""
    if cell.recomputed_flops is None or not cell.model_flops:
        return None
    return cell.recomputed_flops / cell.model_flops


def percent(share: float, digits: int = 1) -> str:
    """``26.0 %``; the sign is shown where it is negative."""
    return f"{share * 100:.{digits}f} %".replace("-", "\N{MINUS SIGN}")

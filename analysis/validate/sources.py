"""Every source with the function that maps its rows, and the check that none is lost."""

from collections.abc import Callable, Sequence

from analysis.validate import (
    frameworks,
    fsdp_ibm,
    korthikanti,
    llm_foundry,
    megatron,
    torchtitan,
    torchtune,
    unmodelled,
)
from analysis.validate.case import Outcome, rows_by_outcome
from analysis.validate.rows import Row
from suite.errors import UsageError

SOURCES: dict[str, Callable[[Sequence[Row]], list[Outcome]]] = {
    "megatron_lm_golden": megatron.outcomes_of,
    "llm_foundry_mpt": llm_foundry.outcomes_of,
    "torchtitan": torchtitan.outcomes_of,
    "torchtune_llama32_3b": torchtune.outcomes_of,
    "pytorch_fsdp_ibm": fsdp_ibm.outcomes_of,
    "korthikanti2022_layer_times_22b": korthikanti.layer_outcomes,
    "korthikanti2022_iteration_times": korthikanti.iteration_outcomes,
    "korthikanti2022_other_claims": korthikanti.claim_outcomes,
    "hf_and_frameworks": frameworks.outcomes_of,
    "megatron_bridge_h100": unmodelled.bridge_outcomes,
    "small_llama_phase_peaks": unmodelled.small_llama_outcomes,
    "memory_budget_and_small_gpu": unmodelled.budget_outcomes,
    "chen2016_sublinear": unmodelled.chen_outcomes,
}


def outcomes_of(rows: Sequence[Row], source: str = "") -> list[Outcome]:
    """What becomes of every row, of ``source`` alone if it is given.

    Raises UsageError on an unknown source, and AssertionError if a row of one becomes nothing.
    """
    if source and source not in SOURCES:
        raise UsageError("--source", source, f"expected one of {', '.join(SOURCES)}")
    found: list[Outcome] = []
    for name, mapped in SOURCES.items():
        mine = [row for row in rows if row.file == name]
        if not mine or source not in ("", name):
            continue
        outcomes = mapped(mine)
        told = set().union(*rows_by_outcome(outcomes).values())
        lost = {row.row_id for row in mine} ^ told
        assert not lost, f"{name}: {sorted(lost)}"
        found += outcomes
    return found

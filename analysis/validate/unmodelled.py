"""Sources of which no row can be predicted: what they leave out, or what the suite does not have."""

from collections.abc import Callable, Sequence

from analysis.validate.case import Outcome, Unmodelled
from analysis.validate.rows import Row


def _each(rows: Sequence[Row], reason: Callable[[Row], str]) -> list[Outcome]:
    return [Unmodelled(row.row_id, row.file, reason(row)) for row in rows]


def bridge_outcomes(rows: Sequence[Row]) -> list[Outcome]:
    """Megatron-Bridge: models and precisions that the suite has not."""

    def reason(row: Row) -> str:
        if row.model.startswith("Moonlight"):
            return "multi-head latent attention"
        if row.model.startswith("Nemotron"):
            return "a hybrid of Mamba and attention"
        if "LoRA" in row.model:
            return "LoRA"
        if row.precision.startswith("FP8"):
            return "products in FP8"
        return "sequence length and parallel layout not stated"

    return _each(rows, reason)


def small_llama_outcomes(rows: Sequence[Row]) -> list[Outcome]:
    """The min-cut study: 12 layers of width 1024, and no more is said of them."""
    return _each(rows, lambda _: "heads, MLP width and vocabulary not stated")


def budget_outcomes(rows: Sequence[Row]) -> list[Outcome]:
    """Memory budgets of the partitioner and small cards."""
    reasons = {
        "PyTorch blog": "numbers only in figures",
        "pytorch/pytorch issue": "widths not stated",
        "allenai": "model size not stated",
        "jdinalt": "heads, sequence, vocabulary and optimizer not stated",
    }
    return _each(rows, lambda row: next(r for name, r in reasons.items() if row.source.startswith(name)))


def chen_outcomes(rows: Sequence[Row]) -> list[Outcome]:
    """Chen et al. 2016 (arXiv:1604.06174)."""
    return _each(rows, lambda _: "convolutional and recurrent networks, not a transformer")

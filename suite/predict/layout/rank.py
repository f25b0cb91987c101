"""The model that one rank runs. Torch-free.

Tensor parallel ranks hold that part of the heads, of the MLP and of the vocabulary (Megatron-LM,
arXiv:1909.08053); a pipeline stage its part of the blocks; an expert parallel rank its part of the experts,
over which tokens are spread evenly; a context parallel rank its part of each sequence.
"""

from dataclasses import replace

from suite.config.schema import CellConfig, ParallelConfig
from suite.errors import UsageError
from suite.models.shape import FAMILIES, head_dim


def check_parallel(config: CellConfig) -> None:
    """Raise UsageError naming the key where the model cannot be spread so."""
    spread = config.parallel
    for name in ("dp", "tp", "pp", "vpp", "cp", "ep", "micro_batches"):
        value = getattr(spread, name)
        if value < 1:
            raise UsageError(f"parallel.{name}", value, "expected a whole number >= 1")
    if spread.zero not in (0, 1, 2, 3):
        raise UsageError("parallel.zero", spread.zero, "expected 0, 1, 2 or 3")
    if spread.recipe not in ("native", "megatron"):
        raise UsageError("parallel.recipe", spread.recipe, "expected native or megatron")
    if not 0 <= spread.stage < spread.pp:
        raise UsageError("parallel.stage", spread.stage, f"expected 0 to {spread.pp - 1}")
    if spread.sp and spread.tp == 1:
        raise UsageError("parallel.sp", spread.sp, "sequence parallel needs parallel.tp > 1")
    _check_divides(config)


def _check_divides(config: CellConfig) -> None:
    model, spread = config.model, config.parallel
    rules = [
        ("tp", spread.tp, "model.n_heads", model.n_heads),
        ("tp", spread.tp, "model.d_ff", model.d_ff),
        ("pp", spread.pp * spread.vpp, "model.n_layers", model.n_layers),
        ("cp", spread.cp, "seq_len", config.seq_len),
    ]
    if FAMILIES[model.family].routed:
        rules.append(("ep", spread.ep, "model.n_experts", model.n_experts))
    elif spread.ep > 1:
        raise UsageError("parallel.ep", spread.ep, f"the {model.family} family has no experts: use 1")
    if spread.sp:
        rules.append(("sp", spread.tp, "seq_len", config.seq_len // spread.cp))
    for name, ranks, what, whole in rules:
        if whole % ranks:
            raise UsageError(f"parallel.{name}", ranks, f"must divide {what}={whole}")


def of_rank(config: CellConfig) -> CellConfig:
    """The cell of one rank, traced as if it were alone: its own heads, blocks, experts and tokens.

    Key-value heads that are fewer than the ranks are held by several of them.
    """
    model, spread = config.model, config.parallel
    if spread == ParallelConfig():
        return config
    local = replace(
        model,
        n_layers=model.n_layers // spread.pp,
        n_heads=model.n_heads // spread.tp,
        n_kv_heads=max(1, model.n_kv_heads // spread.tp),
        head_dim=head_dim(model),
        d_ff=model.d_ff // spread.tp,
        vocab_size=-(-model.vocab_size // spread.tp),
        n_experts=model.n_experts // spread.ep,
        top_k=min(model.top_k, model.n_experts // spread.ep),
    )
    return replace(config, model=local, seq_len=config.seq_len // spread.cp, parallel=ParallelConfig())


def in_flight(spread: ParallelConfig) -> float:
    """How many micro-batches of its own blocks a stage holds at once at the peak, under 1F1B.

    Korthikanti et al. 2022 (arXiv:2205.05198), section 4.2.3: the first stage holds as many as there are
    stages, and with interleaving ``1 + (p - 1) / (p v)`` times that; each later stage one fewer.
    """
    most = min(spread.pp - spread.stage, spread.micro_batches)
    if spread.vpp == 1 or spread.pp == 1:
        return float(most)
    return most * (1 + (spread.pp - 1) / (spread.pp * spread.vpp)) if spread.stage == 0 else float(most)

"""The typed shape of every configuration the suite accepts.

Hydra composes YAML from ``conf/``; :mod:`suite.config.load` turns the result into these classes and
refuses what does not fit. Everything in :class:`CellConfig` changes what is measured and is hashed
into the cell's identity; everything else says how, where or how often.
"""

from dataclasses import dataclass, field
from typing import Any

PASSES = ("predict", "memory", "flops", "parity", "time")
PRECISIONS = ("fp32", "bf16-mixed", "bf16-true")
ATTENTIONS = ("eager", "sdpa", "flash")
COMPILES = ("none", "block", "model")
COMPILE_BACKENDS = ("inductor", "aot_eager")
MODES = ("measure", "predict", "both")
RECIPES = ("native", "megatron")
STATUSES = (
    "ok",
    "oom",
    "timeout",
    "crash",
    "wrong",
    "noop",
    "invalid",
    "unsupported",
    "interrupted",
)


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only transformer.

    Attributes:
        d_ff: width of the MLP; of one expert in a mixture.
        head_dim: 0 means ``d_model // n_heads``.
        n_experts: experts that tokens are routed to; 0 in families whose MLP is dense.
        top_k: experts that compute each token.
        aux_loss: coefficient of the load-balancing loss; 0 leaves it out.
        n_shared_experts: experts that compute every token, beside the routed ones.
    """

    name: str
    family: str
    vocab_size: int
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    d_ff: int
    max_seq_len: int
    head_dim: int = 0
    dropout: float = 0.0
    tied_head: bool = False
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    n_experts: int = 0
    top_k: int = 0
    aux_loss: float = 0.0
    n_shared_experts: int = 0
    source: str = ""


@dataclass(frozen=True)
class OptimizerConfig:
    """``kind``: adamw or sgd; ``impl``: foreach, fused or forloop."""

    kind: str = "adamw"
    impl: str = "foreach"
    lr: float = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.9


@dataclass(frozen=True)
class DataConfig:
    """``kind``: synthetic, bytes (``path``) or packed (document lengths from ``lengths``)."""

    kind: str = "synthetic"
    path: str = ""
    lengths: str = "lognormal"
    mean_length: int = 256
    sigma: float = 1.0


@dataclass(frozen=True)
class DeviceConfig:
    """``type``: auto, cpu or a torch accelerator (cuda, xpu, mps); ``threads`` 0 pins to every core."""

    type: str = "auto"
    threads: int = 0
    ids: str = "all"


@dataclass(frozen=True)
class TrainerConfig:
    """The protocol of the time pass: warm-up until steady, then ``steps`` timed optimizer steps."""

    warmup_min_steps: int = 2
    warmup_max_steps: int = 12
    steady_within: float = 0.1
    steps: int = 5


@dataclass(frozen=True)
class HardwareConfig:
    """One kind of device: what MFU is relative to, and what a prediction for it needs. Dense peaks only.

    Attributes:
        device: what torch calls it, cpu or cuda.
        capability: CUDA's compute capability, ``9.0``; empty where there is none.
        bandwidth_bytes_per_s: of its memory.
        host_bandwidth_bytes_per_s: of the link to host memory, one way; 0: not stated.
    """

    name: str = "auto"
    match: str = ""
    device: str = "cuda"
    capability: str = ""
    host_bandwidth_bytes_per_s: float = 0.0
    memory_bytes: int = 0
    bandwidth_bytes_per_s: float = 0.0
    peak_flops_per_s: dict[str, float] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True)
class LimitsConfig:
    """``timeout_s``: hard limit of one child. ``host_memory``: its memory on CPU, ``auto`` or bytes."""

    timeout_s: float = 600.0
    grace_s: float = 5.0
    host_memory: str = "auto"


@dataclass(frozen=True)
class TrackingConfig:
    """``kind``: mlflow or none. An empty ``uri`` means sqlite under ``paths.runs``."""

    kind: str = "mlflow"
    uri: str = ""
    experiment: str = "recompute-suite"


@dataclass(frozen=True)
class PathsConfig:
    """Where results go. Relative paths are taken from the folder the command is started in."""

    runs: str = "runs"
    reports: str = "reports"


@dataclass(frozen=True)
class PolicyConfig:
    """One policy: its family's name and the options that family's ``Config`` accepts."""

    family: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ParallelConfig:
    """How one training step is spread over devices. Ones and zeros: over none but this.

    Attributes:
        dp: replicas of the model.
        zero: what they share out: 0 nothing, 1 optimizer states, 2 gradients too, 3 parameters too (FSDP).
        tp: tensor parallel ranks.
        sp: the parts between tensor parallel products are spread along the sequence too.
        pp: pipeline stages.
        vpp: chunks of the trunk that each stage holds, interleaved.
        cp: context parallel ranks: each has that part of every sequence.
        ep: expert parallel ranks.
        stage: which pipeline stage is asked about.
        micro_batches: forward and backward passes of one replica before its optimizer's step.
        recipe: ``native``: gradients and states in the parameters' precision. ``megatron``: parameters in
            bf16, gradients in fp32, and a copy of the parameters in fp32 beside the optimizer's states.
    """

    dp: int = 1
    zero: int = 0
    tp: int = 1
    sp: bool = False
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    stage: int = 0
    micro_batches: int = 1
    recipe: str = "native"


@dataclass(frozen=True)
class CellConfig:
    """One workload under one policy on one device: exactly what is hashed into a cell's identity.

    ``compile_backend`` is empty where ``compile`` is none, and then no part of the identity; neither is
    ``parallel`` where there is one device.
    """

    model: ModelConfig
    policy: PolicyConfig
    seq_len: int
    batch_size: int
    precision: str
    attention: str
    compile: str
    optimizer: OptimizerConfig
    data: DataConfig
    device: str
    threads: int
    seed: int
    compile_backend: str = ""
    parallel: ParallelConfig = ParallelConfig()


@dataclass(frozen=True)
class SessionConfig:
    """How a run of many cells goes: not part of any cell's identity.

    ``passes`` are taken over every cell but those that ``cell_passes`` names by id. ``fingerprint`` is the
    device's, or of the one that is predicted for.
    """

    name: str
    passes: tuple[str, ...]
    rounds: int
    trainer: TrainerConfig
    limits: LimitsConfig
    tracking: TrackingConfig
    paths: PathsConfig
    hardware: HardwareConfig
    device_ids: str
    budget_bytes: int | None
    reference: str
    retry: tuple[str, ...]
    on_failure: str
    max_failures: int
    adopt: bool
    plan: bool
    mode: str
    report: bool
    assumptions: dict[str, Any] = field(default_factory=dict)
    fingerprint: dict[str, Any] = field(default_factory=dict)
    cell_passes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def passes_of(self, cell_id: str) -> tuple[str, ...]:
        """The passes that the cell of that id gets."""
        return self.cell_passes.get(cell_id, self.passes)

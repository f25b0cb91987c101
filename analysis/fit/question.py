"""What is asked: a workload, the axis that grows, the policies, and what must hold them."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from omegaconf import OmegaConf

from analysis.fit.policies import policies_of
from analysis.policies.workload import CONF, workload_of
from suite.cell import Cell, policy_label
from suite.config.load import check_policy, load_assumptions, load_hardware
from suite.config.schema import CellConfig, HardwareConfig, PolicyConfig
from suite.errors import Unsupported, UsageError
from suite.models.shape import FAMILIES
from suite.predict.time.rates import OVERRIDABLE, checked
from suite.units import parse_bytes

AXES = ("seq_len", "batch_size", "n_layers")
_STEPS = {"seq_len": 128, "batch_size": 1, "n_layers": 1}
MOST = 1 << 22


@dataclass(frozen=True)
class Limits:
    """What a step must fit. Bytes.

    Attributes:
        capacity_bytes: of the card; None: a CPU, which has no such limit.
        budget_bytes: for the peak of what is allocated; None: the card alone is the limit.
    """

    capacity_bytes: int | None
    budget_bytes: int | None


@dataclass(frozen=True)
class Question:
    """One workload under several policies, along one axis.

    Attributes:
        cell: the workload at its own value of the axis; its policy has no meaning.
        vary: the axis: seq_len, batch_size or n_layers.
        step: values are multiples of it.
        most: the largest value; a multiple of ``step``.
        bounded_by: why there is nothing beyond ``most``, in words.
        assumptions: those that the user sets, by name.
    """

    cell: Cell
    hardware: HardwareConfig
    limits: Limits
    vary: str
    step: int
    most: int
    bounded_by: str
    policies: tuple[PolicyConfig, ...]
    assumptions: dict[str, Any]

    @property
    def start(self) -> int:
        """Where a search begins: the workload's own value, on the grid of values."""
        config = self.cell.config
        own = config.model.n_layers if self.vary == "n_layers" else getattr(config, self.vary)
        return min(self.most, max(self.step, own // self.step * self.step))

    def config(self, policy: PolicyConfig, value: int) -> CellConfig:
        """The workload under ``policy`` with ``value`` on the axis."""
        own = dataclasses.replace(self.cell.config, policy=policy)
        if self.vary == "n_layers":
            return dataclasses.replace(own, model=dataclasses.replace(own.model, n_layers=value))
        if self.vary == "seq_len":
            return dataclasses.replace(own, seq_len=value)
        return dataclasses.replace(own, batch_size=value)

    def request(self, policy: PolicyConfig, value: int) -> dict[str, Any]:
        """The same as the predictor is asked it."""
        config = json.loads(json.dumps(Cell(self.config(policy, value)).resolved))
        return {"config": config, "hardware": self.hardware.name, "assumptions": self.assumptions}

    def refusal(self, policy: PolicyConfig) -> str:
        """Why the policy cannot apply to the workload at the start; empty if it can."""
        try:
            check_policy(Cell(self.config(policy, self.start)), here=False)
        except (Unsupported, UsageError) as problem:
            return str(problem)
        return ""

    def label(self, policy: PolicyConfig) -> str:
        """The policy as reports name it."""
        return policy_label(dataclasses.asdict(policy))


def question_of(
    overrides: Mapping[str, object],
    *,
    hardware: str,
    policies: Sequence[str] = (),
    vary: str = "seq_len",
    step: int = 0,
    most: int = MOST,
    budget: str = "",
    parallel: str = "",
    assume: Sequence[str] = (),
) -> Question:
    """The question of a command line, checked.

    Args:
        overrides: of the workload, by key of the suite's configuration; empty values are left out.
        hardware: a name of ``conf/hardware``.
        policies: labels; none: a selection of every kind.
        vary: the axis.
        step: 0: 128 tokens, one sequence or one block, or what the parallel strategy divides.
        most: the largest value.
        budget: bytes, such as ``60GiB``; empty: the card is the limit.
        parallel: ``tp=8,zero=3``.
        assume: ``name=value`` each.

    Raises UsageError naming the key, the value and what is allowed.
    """
    card = hardware_of(hardware)
    if vary not in AXES:
        raise UsageError("--vary", vary, f"expected one of {', '.join(AXES)}")
    given = [f"{key}={value}" for key, value in overrides.items() if value not in ("", 0)]
    given += [f"parallel.{pair}" for pair in _pairs(parallel, "--parallel")]
    given += [f"device.type={card.device}", "mode=predict", "policy=none"]
    model = str(overrides.get("model", ""))
    if not overrides.get("seq_len"):
        given.append(f"seq_len={_longest(model)}")
    cell, _ = workload_of(given)
    check_policy(cell, here=False)
    limits = _limits(card, budget)
    grid = _step(cell.config, vary, step)
    if most < grid:
        raise UsageError("--most", most, f"expected at least one step of {grid}")
    longest = cell.config.model.max_seq_len
    learned = FAMILIES[cell.config.model.family].learned_positions
    bounded_by = f"--most={most}"
    if vary == "seq_len" and learned and longest < most:
        most, bounded_by = longest, f"learned positions up to model.max_seq_len={longest}"
        if most < grid:
            raise UsageError("--step", grid, f"more than {bounded_by}")
    return Question(
        cell=cell,
        hardware=card,
        limits=limits,
        vary=vary,
        step=grid,
        most=most // grid * grid,
        bounded_by=bounded_by,
        policies=tuple(policies_of(policies)),
        assumptions=_assumptions(assume),
    )


def hardware_of(name: str) -> HardwareConfig:
    """The file ``NAME.yaml`` of ``conf/hardware``. Raises UsageError if there is none."""
    known = sorted(path.stem for path in (CONF / "hardware").glob("*.yaml") if path.stem != "auto")
    if name not in known:
        raise UsageError("--hardware", name, f"expected one of {', '.join(known)}")
    return load_hardware(OmegaConf.load(CONF / "hardware" / f"{name}.yaml"))


def _limits(card: HardwareConfig, budget: str) -> Limits:
    capacity = card.memory_bytes or None
    if not budget:
        if capacity is None:
            raise UsageError("--budget", "", f"hardware={card.name} has no limit: give one, such as 60GiB")
        return Limits(capacity, None)
    wanted = parse_bytes(budget, "--budget")
    if wanted <= 0:
        raise UsageError("--budget", budget, "expected more than 0 bytes")
    return Limits(capacity, wanted)


def _step(config: CellConfig, vary: str, step: int) -> int:
    """The step, or the least multiple of the default that the parallel strategy can divide."""
    if step < 0:
        raise UsageError("--step", step, "expected a whole number >= 1")
    spread = config.parallel
    needed = {"seq_len": spread.cp * (spread.tp if spread.sp else 1), "n_layers": spread.pp * spread.vpp}
    divisor = needed.get(vary, 1)
    if not step:
        return math.lcm(_STEPS[vary], divisor)
    if step % divisor:
        raise UsageError(
            "--step", step, f"expected a multiple of {divisor}: the parallel strategy divides it"
        )
    return step


def _longest(model: str) -> int:
    """The model's own context, where no length is given: a search begins there."""
    path = CONF / "model" / f"{model}.yaml"
    # An unknown model is refused by the composition, which lists those that there are.
    return int(yaml.safe_load(path.read_text(encoding="utf-8"))["max_seq_len"]) if path.exists() else 1


def _assumptions(assume: Sequence[str]) -> dict[str, Any]:
    known = list(yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))["assumptions"])
    given: dict[str, Any] = {}
    for pair in assume:
        [text] = _pairs(pair, "--assume") or [pair]
        name, _, value = text.partition("=")
        if name not in (*known, *OVERRIDABLE):
            raise UsageError("--assume", name, f"expected one of {', '.join((*known, *OVERRIDABLE))}")
        given[name] = _number(value)
    memory = {name: value for name, value in given.items() if name in known}
    rates = {name: value for name, value in given.items() if name not in known}
    return {**load_assumptions(OmegaConf.create({"assumptions": memory})), **checked(rates)}


def _pairs(text: str, key: str) -> list[str]:
    pairs = [pair.strip() for pair in text.split(",") if pair.strip()]
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise UsageError(key, text, "expected name=value")
    return pairs


def _number(text: str) -> Any:
    value = yaml.safe_load(text)
    # YAML 1.1 takes 3e12 for text.
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value

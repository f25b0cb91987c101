"""The parity pass: is one step under the policy the same step as without it?

Same weights, batch and random state, twice: first as built, then with the policy applied to the very
same model; where the workload is compiled both steps are, each on a model of its own. Loss, every
gradient, every buffer and the random state afterwards are compared, and the forwards of each block
counted where Python runs them. On the CPU the result must be bitwise equal unless the policy states a
tolerance of its own, or inductor makes kernels that may fuse differently; on an accelerator, where
kernels may sum in any order, within :data:`RELATIVE_TOLERANCE` at least.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from suite.cell import Cell
from suite.config.schema import CellConfig, PolicyConfig, SessionConfig
from suite.measure import Measurement
from suite.measure.compare import Difference, compare_tensors
from suite.measure.setup import STEP_SEED, Subject, build_subject, first_batch
from suite.policies import Applied, Tolerance, make_policy
from suite.training.precision import PRECISION
from suite.training.step import model_loss

# Norm of the difference over the norm of the reference, for one gradient. Rounding of one bf16 product
# is 2^-8; atomics reorder sums in fp32.
RELATIVE_TOLERANCE = {"fp32": 1e-4, "bf16-mixed": 2e-2, "bf16-true": 2e-2}
_LEAST_LENGTH = 16
_ANY_ORDER = "kernels of this device may sum in any order"


@dataclass(frozen=True)
class Outcome:
    """What one step left behind."""

    loss: torch.Tensor
    gradients: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    random_states: list[torch.Tensor]
    forwards: list[int]


def take(cell: Cell, round_: int, session: SessionConfig) -> Measurement:  # noqa: ARG001
    """Compare a step under the policy with one without. Status ``wrong`` names what differs."""
    config, subject, reference = _reference_that_fits(cell.config)
    if config.compile != "none":
        # What is compiled stays compiled, without the policy: another model of the same weights.
        torch.compiler.reset()
        subject = build_subject(config, instrumented=False)
    applied = subject.apply_policy()
    outcome = run_step(subject, applied)
    measurement = judge(reference, outcome, tolerance_of(config))
    measurement.detail["seq_len"] = config.seq_len
    if config.seq_len != cell.config.seq_len:
        measurement.warnings.append(
            f"compared at seq_len={config.seq_len}: without the policy the step does not fit at "
            f"{cell.config.seq_len}"
        )
    return measurement


def _reference_that_fits(config: CellConfig) -> tuple[CellConfig, Subject, Outcome]:
    """The reference step, at half the length while the device has no room for it."""
    while True:
        try:
            reference = dataclasses.replace(config, policy=PolicyConfig("none"))
            subject = build_subject(reference, instrumented=True)
            outcome = run_step(subject, subject.apply_policy())
            return config, Subject(config, subject.model, subject.paths), outcome
        except torch.OutOfMemoryError:
            shorter = config.seq_len // 2
            if shorter < _LEAST_LENGTH:
                raise
        config = dataclasses.replace(config, seq_len=shorter)
        torch.accelerator.empty_cache()


def run_step(subject: Subject, applied: Applied) -> Outcome:
    """One forward and backward from the subject's present weights; its buffers are restored after."""
    config, model = subject.config, subject.model
    if subject.paths is not None:
        subject.paths.forwards.clear()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    torch.manual_seed(config.seed + STEP_SEED)
    with PRECISION[config.precision].autocast(config.device):
        loss = model_loss(model, first_batch(config), lambda _: None)
    applied.verify()
    loss.backward()  # type: ignore[no-untyped-call]
    outcome = Outcome(
        loss=loss.detach(),
        gradients={n: p.grad for n, p in model.named_parameters() if p.grad is not None},
        buffers={name: buffer.clone() for name, buffer in model.named_buffers()},
        random_states=_random_states(config.device),
        forwards=_forwards(subject),
    )
    model.zero_grad(set_to_none=True)
    for name, buffer in model.named_buffers():
        buffer.copy_(before[name])
    return outcome


def _forwards(subject: Subject) -> list[int]:
    """How often each block's forward ran; empty where nobody could count."""
    if subject.paths is None:
        return []
    return [subject.paths.forwards[f"blocks.{i}"] for i in range(subject.config.model.n_layers)]


def tolerance_of(config: CellConfig) -> Tolerance:
    """The policy's own, or none at all where the same operators run in the same order.

    On the CPU they do, compiled or not, unless inductor makes kernels of its own; kernels of accelerators
    may sum in any order.
    """
    own = make_policy(config.policy).tolerance(config)
    fused = config.compile != "none" and config.compile_backend == "inductor"
    if config.device == "cpu" and not fused:
        return own or Tolerance(0.0, "the same operators run in the same order")
    reason = "inductor may fuse a replay otherwise than a forward" if fused else _ANY_ORDER
    kernels = Tolerance(RELATIVE_TOLERANCE[config.precision], reason)
    if own is None or own.relative < kernels.relative:
        return kernels
    return dataclasses.replace(own, exact_forward=False)


def judge(reference: Outcome, outcome: Outcome, allowed: Tolerance) -> Measurement:
    """The verdict: ``ok``, or ``wrong`` with the worst difference named."""
    tolerance = allowed.relative
    gradients = compare_tensors(reference.gradients, outcome.gradients, tolerance)
    buffers = compare_tensors(reference.buffers, outcome.buffers, tolerance)
    loss_tolerance = 0.0 if allowed.exact_forward else tolerance
    losses = compare_tensors({"loss": reference.loss}, {"loss": outcome.loss}, loss_tolerance)
    random_equal = all(map(torch.equal, reference.random_states, outcome.random_states))
    wrong = [
        *_named("loss", losses, 1),
        *_named("gradients", gradients, len(reference.gradients)),
        *_named("buffers", buffers, len(reference.buffers)),
        *([] if random_equal else ["the random state after the step differs"]),
    ]
    differing = [d for d in gradients if not d.equal]
    finite = [d for d in gradients if d.finite]
    return Measurement(
        status="wrong" if wrong else "ok",
        figures={
            "loss": _finite_or_zero(outcome.loss),
            "loss_abs_diff": losses[0].absolute if losses[0].finite else 0.0,
            "max_grad_abs_diff": max((d.absolute for d in finite), default=0.0),
            "max_grad_rel_diff": max((d.relative for d in finite), default=0.0),
            "parameters_compared_count": len(reference.gradients),
            "parameters_differing_count": len(differing),
            "buffers_differing_count": sum(not d.equal for d in buffers),
            "rng_equal_count": int(random_equal),
        }
        | ({"block_forwards_count": sum(outcome.forwards)} if outcome.forwards else {}),
        detail={
            "bitwise": not differing and random_equal,
            "tolerance": tolerance,
            "tolerance_reason": allowed.reason,
            "forwards_per_block": {"policy": outcome.forwards, "reference": reference.forwards},
            "differing": [d.as_dict() for d in sorted(differing, key=_worst)[:10]],
        },
        error={"type": "Wrong", "message": "; ".join(wrong), "where": "parity"} if wrong else None,
    )


def _worst(difference: Difference) -> float:
    return -difference.relative if difference.finite else float("-inf")


def _named(what: str, differences: list[Difference], compared: int) -> list[str]:
    wrong = sorted((d for d in differences if not d.within), key=_worst)
    if not wrong:
        return []
    return [f"{len(wrong)} of {compared} {what} differ, {wrong[0].name} the most: {wrong[0].reason}"]


def _random_states(device: str) -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if device != "cpu":
        module: Any = torch.get_device_module(device)
        read: Callable[[], torch.Tensor] = module.get_rng_state
        states.append(read())
    return states


def _finite_or_zero(value: torch.Tensor) -> float:
    return float(value) if bool(torch.isfinite(value)) else 0.0

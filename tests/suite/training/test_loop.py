"""The loop: the same training as one written out, phases at the exact moments, and nothing besides."""

import os
import signal
import subprocess
import sys
import threading
from itertools import islice

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from training_cases import packed, seeded_model, workload

from suite.config.schema import PRECISIONS, OptimizerConfig
from suite.training.data import batches
from suite.training.loop import StepObserver, train
from suite.training.optimizers import build_optimizer
from suite.training.precision import PRECISION
from suite.training.step import model_loss

STEP = ["forward", "loss", "backward", "optimizer", "idle"]


class Journal(StepObserver):
    """Writes down every call, and what it finds at that moment."""

    def __init__(self, model, stop_after=None):
        self.model, self.stop_after = model, stop_after
        self.calls, self.losses, self.states = [], [], []
        self.optimizer = None

    def on_optimizer(self, optimizer):
        self.calls.append("optimizer exists")
        self.optimizer = optimizer

    def on_step_start(self, index, batch):
        self.calls.append(("start", index, tuple(batch.tokens.shape)))

    def on_phase(self, phase):
        self.calls.append(phase)
        gradients = [p.grad is not None for p in self.model.parameters()]
        self.states.append((phase, any(gradients), all(gradients), len(self.optimizer.state) > 0))

    def on_step_end(self, index):
        self.calls.append(("end", index))
        return index == self.stop_after


def written_out(config, steps):
    """The training that the loop must equal."""
    model = seeded_model(config)
    optimizer = build_optimizer(model.parameters(), config.optimizer)
    for batch in islice(batches(config), steps):
        with PRECISION[config.precision].autocast("cpu"):
            loss = model_loss(model, batch, lambda phase: None)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


@pytest.mark.parametrize("data", [workload().data, packed(mean_length=5)], ids=["synthetic", "packed"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_training_is_bitwise_that_of_a_plain_loop(precision, data):
    # A rate at which even a bfloat16 scale of one moves.
    config = workload(precision=precision, data=data, optimizer=OptimizerConfig(lr=0.05))
    start = dict(seeded_model(config).named_parameters())
    expected = written_out(config, 4)
    model = seeded_model(config)
    train(model, config, StepObserver(), 4)
    for (name, a), (_, b) in zip(model.named_parameters(), expected.named_parameters(), strict=True):
        assert a.dtype == PRECISION[precision].model_dtype
        assert torch.equal(a, b), name
        assert not torch.equal(a, start[name]), name


def test_it_learns():
    config = workload(optimizer=OptimizerConfig(lr=0.01), seed=3)
    losses = []

    class Repeat(StepObserver):
        def on_step_start(self, index, batch):
            first = next(batches(config))
            for tensor, same in zip(batch[:2], first[:2], strict=True):
                tensor.copy_(same)
            with torch.no_grad():
                losses.append(model_loss(model, first, lambda phase: None).item())

    model = seeded_model(config)
    train(model, config, Repeat(), 30)
    assert losses[-1] < 0.5 * losses[0]


def test_calls_come_in_exactly_this_order():
    config = workload()
    model = seeded_model(config)
    journal = Journal(model)
    train(model, config, journal, 3)
    steps = [[("start", i, (2, 12)), *STEP, ("end", i)] for i in range(3)]
    assert journal.calls == ["optimizer exists", *steps[0], *steps[1], *steps[2]]


def test_phases_begin_at_the_exact_moments():
    """Gradients: none through forward and loss, none yet at backward, all at optimizer, none at idle."""
    model = seeded_model(workload())
    journal = Journal(model)
    train(model, workload(), journal, 2)
    first = [
        ("forward", False, False, False),
        ("loss", False, False, False),
        ("backward", False, False, False),
        ("optimizer", True, True, False),
        ("idle", False, False, True),
    ]
    assert journal.states == [*first, *[(*state[:3], True) for state in first]]


def test_the_optimizer_has_not_moved_the_weights_when_its_phase_begins():
    model = seeded_model(workload())
    start = [p.clone() for p in model.parameters()]
    seen = []

    class Compare(StepObserver):
        def on_phase(self, phase):
            seen.append(all(torch.equal(a, b) for a, b in zip(start, model.parameters(), strict=True)))

    train(model, workload(), Compare(), 1)
    assert seen == [True, True, True, True, False]


@pytest.mark.parametrize("stop_after", [0, 2])
def test_the_observer_stops_the_training(stop_after):
    model = seeded_model(workload())
    journal = Journal(model, stop_after)
    train(model, workload(), journal, 50)
    assert [call for call in journal.calls if call[0] == "end"] == [
        ("end", i) for i in range(stop_after + 1)
    ]
    assert all(p.grad is None for p in model.parameters())


def test_batches_are_read_one_step_at_a_time(monkeypatch):
    """A batch fetched early would be alive in the step before, and counted there."""
    from suite.training import loop

    fetched = []

    def counted(config):
        for batch in batches(config):
            fetched.append(batch)
            yield batch

    monkeypatch.setattr(loop, "batches", counted)

    class Count(StepObserver):
        def on_step_start(self, index, batch):
            assert len(fetched) == index + 1
            assert batch.tokens is fetched[-1].tokens

    train(seeded_model(workload()), workload(), Count(), 3)
    assert len(fetched) == 3


def test_lightning_draws_no_random_numbers():
    model = seeded_model(workload())
    before = torch.get_rng_state()
    train(model, workload(), StepObserver(), 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_error_in_a_step_comes_out_as_it_is():
    class Fail(StepObserver):
        def on_phase(self, phase):
            if phase == "backward":
                raise MemoryError("no more")

    with pytest.raises(MemoryError, match=r"^no more$"):
        train(seeded_model(workload()), workload(), Fail(), 2)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_sigterm_means_during_training_what_it_meant_before():
    got = []

    class Terminate(StepObserver):
        def on_phase(self, phase):
            if phase == "loss":
                os.kill(os.getpid(), signal.SIGTERM)

    previous = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    try:
        train(seeded_model(workload()), workload(), Terminate(), 2)
        assert signal.getsignal(signal.SIGTERM)(0, None) is None
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert got == [signal.SIGTERM, signal.SIGTERM, 0]


def test_it_runs_outside_the_main_thread_and_inside_a_slurm_job(monkeypatch):
    for name, value in {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "sweep", "SLURM_PROCID": "3"}.items():
        monkeypatch.setenv(name, value)
    journal = Journal(seeded_model(workload()))
    thread = threading.Thread(target=train, args=(journal.model, workload(), journal, 2))
    thread.start()
    thread.join(60)
    assert journal.calls[-1] == ("end", 1)


def test_lightnings_remark_on_an_accelerator_that_is_not_its_own_is_expected(monkeypatch):
    monkeypatch.setattr(
        "lightning.pytorch.trainer.setup.CUDAAccelerator.is_available", staticmethod(lambda: True)
    )
    train(seeded_model(workload()), workload(), StepObserver(), 1)  # any warning is an error here


def test_a_model_in_the_wrong_place_or_dtype_is_refused():
    with pytest.raises(ValueError, match=r"this precision trains torch\.bfloat16"):
        train(seeded_model(workload()), workload(precision="bf16-true"), StepObserver(), 1)
    with torch.device("meta"):
        elsewhere = seeded_model(workload())
    with pytest.raises(ValueError, match="is on meta, training is on cpu"):
        train(elsewhere, workload(), StepObserver(), 1)


@pytest.mark.parametrize("data", [workload().data, packed(mean_length=5)], ids=["synthetic", "packed"])
def test_it_runs_on_fake_tensors(data):
    config = workload(data=data, precision="bf16-mixed")
    with FakeTensorMode():
        model = seeded_model(config)
        journal = Journal(model)
        train(model, config, journal, 2)
    assert journal.calls[-1] == ("end", 1)


def test_a_process_that_trains_prints_nothing_and_writes_nothing(tmp_path):
    """With every warning shown: what is silenced is silenced by name, and only during the training."""
    code = (
        "import logging, warnings\n"
        "from training_cases import seeded_model, workload\n"
        "from suite.training.loop import StepObserver, train\n"
        "class Warn(StepObserver):\n"
        "    def on_step_start(self, index, batch):\n"
        "        warnings.warn('mine', stacklevel=1)\n"
        "for precision in ('fp32', 'bf16-mixed', 'bf16-true'):\n"
        "    config = workload(precision=precision)\n"
        "    with warnings.catch_warnings(record=True) as caught:\n"
        "        train(seeded_model(config), config, Warn(), 1)\n"
        "    assert [str(w.message) for w in caught] == ['mine'], [str(w.message) for w in caught]\n"
        "assert logging.getLogger('lightning.pytorch.utilities.rank_zero').level == logging.NOTSET\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-W", "always", "-c", code],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []

"""What children do in these tests: real processes that end in every way a process can end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from suite.cell import Cell
from suite.config.schema import SessionConfig
from suite.errors import MatchedNothing
from suite.measure import Measurement
from suite.record import REQUIRED_FIGURES

EXECUTIONS = "executions.txt"


def measure(cell: Cell, pass_: str, round_: int, session: SessionConfig) -> Measurement:
    """Note the execution, then do what the policy's options say: ``do`` at the pass ``at``."""
    with Path(session.paths.runs, EXECUTIONS).open("a") as file:
        file.write(f"{cell.id} {pass_} {round_}\n")
    options = cell.config.policy.options
    if options.get("at", pass_) == pass_:
        return SCENARIOS[options.get("do", "ok")](cell, pass_, session)
    return ok(cell, pass_, session)


def ok(cell, pass_, session):
    figures = dict.fromkeys(REQUIRED_FIGURES[pass_], 1.0)
    if pass_ == "memory":
        figures["peak_bytes"] = float(cell.config.policy.options.get("peak", 1000))
    if pass_ == "flops":
        figures["executed_flops"] = float(len(cell.policy_label))
    return Measurement(figures=figures, detail={"pid": os.getpid()})


def slow(cell, pass_, session):
    time.sleep(float(cell.config.policy.options.get("seconds", 0.4)))
    return ok(cell, pass_, session)


def unsupported(cell, pass_, session):
    raise MatchedNothing("no module is called nope; there are attn, mlp")


def value_error(cell, pass_, session):
    raise ValueError("the figures do not add up")


def inside_torch(cell, pass_, session):
    import torch

    torch.nn.Linear(3, 4)(torch.ones(2, 5))


def system_exit(cell, pass_, session):
    sys.exit("left early")


def wrong(cell, pass_, session):
    error = {"type": "Parity", "message": "gradients differ", "where": ""}
    return Measurement(status="wrong", figures={"max_grad_abs_diff": 1.0}, error=error)


def nan(cell, pass_, session):
    measured = ok(cell, pass_, session)
    measured.figures["peak_bytes"] = float("nan")
    return measured


def unstorable(cell, pass_, session):
    measured = ok(cell, pass_, session)
    measured.detail["thing"] = object()
    return measured


def incomplete(cell, pass_, session):
    return Measurement(figures={})


def abort(cell, pass_, session):
    print("about to abort")
    os.abort()


def kill_itself(cell, pass_, session):
    os.kill(os.getpid(), signal.SIGKILL)


def exit_silently(cell, pass_, session):
    print("last words on stdout")
    sys.stdout.flush()
    os._exit(7)


def exit_for_memory(cell, pass_, session):
    print("terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr)
    os._exit(1)


def host_oom(cell, pass_, session):
    return bytearray(1 << 40)


def tensor_oom(cell, pass_, session):
    import torch

    held = [torch.empty(1 << 20, dtype=torch.uint8) for _ in range(10)]
    held.append(torch.empty(1 << 40, dtype=torch.uint8))


def device_oom(cell, pass_, session):
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ...")


def hang(cell, pass_, session):
    """Together with a process of its own that would outlive it."""
    grandchild = subprocess.Popen(["sleep", "600"])
    Path(session.paths.runs, "grandchild.txt").write_text(str(grandchild.pid))
    time.sleep(600)


def hang_stubbornly(cell, pass_, session):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    time.sleep(600)


def leave_a_grandchild(cell, pass_, session):
    grandchild = subprocess.Popen(["sleep", "600"])
    Path(session.paths.runs, "left.txt").write_text(str(grandchild.pid))
    return ok(cell, pass_, session)


def look_around(cell, pass_, session):
    """What the child sees of itself."""
    import torch

    measured = ok(cell, pass_, session)
    print("hello from the child")
    os.write(2, b"and from below Python\n")
    measured.detail.update(
        group=os.getpgrp(),
        session=os.getsid(0),
        threads=torch.get_num_threads(),
        omp=os.environ["OMP_NUM_THREADS"],
        spin=os.environ.get("GOMP_SPINCOUNT"),
        lease=os.environ.get("CUDA_VISIBLE_DEVICES"),
        preload="runners.preload" in sys.modules,
        sigint=signal.getsignal(signal.SIGINT) == signal.SIG_DFL,
        sigterm=signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    )
    return measured


def kill_server(cell, pass_, session):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def exclusive(cell, pass_, session):
    """Fails if another child is inside at the same time."""
    inside = Path(session.paths.runs, "inside")
    inside.touch(exist_ok=False)
    time.sleep(0.1)
    inside.unlink()
    return ok(cell, pass_, session)


def meet(cell, pass_, session):
    """Ends only when a child of every sequence length is inside at the same time; notes its lease."""
    meeting = Path(session.paths.runs, f"meeting-{pass_}")
    meeting.mkdir(exist_ok=True)
    (meeting / str(cell.config.seq_len)).touch()
    while len(list(meeting.iterdir())) < 2:
        time.sleep(0.01)
    measured = ok(cell, pass_, session)
    measured.detail["lease"] = os.environ["CUDA_VISIBLE_DEVICES"]
    return measured


SCENARIOS = {
    name: value
    for name, value in globals().items()
    if callable(value) and getattr(value, "__module__", "") == __name__ and name != "measure"
}


def echo(*arguments):
    """For ForkServer.ask."""
    return {"arguments": list(arguments), "threads": _server_threads()}


def _server_threads() -> int:
    """Threads of the fork server when it forked this child."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(status.split("Threads:")[1].split()[0])


def fail(_message):
    raise LookupError(_message)


def vanish():
    print("gone", flush=True)
    os._exit(3)

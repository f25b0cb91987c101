"""From Hydra's overrides to a session: compose the cells, refuse what cannot be, run or plan.

Called by the command line and by the launcher of a multirun, inside a Hydra application.
"""

import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from runners.composing import compose
from runners.forkserver import ForkServer
from runners.plan import print_plan
from runners.session import run_session
from suite.cell import Cell, digest, policy_label
from suite.config.expand import (
    cell_overrides,
    choose_scale,
    expand,
    session_overrides,
)
from suite.config.hardware import described, match_hardware
from suite.config.known import check_known
from suite.config.load import (
    check_budget,
    check_policy,
    load_cell,
    load_hardware,
    load_passes,
    load_session,
)
from suite.config.schema import PASSES, HardwareConfig, SessionConfig
from suite.errors import Unsupported, UsageError
from suite.policies import parse_policy
from suite.store import RecordStore
from suite.tracking import check_tracking, open_tracker

# How most reasons why a cell is unsupported begin.
_KEY_AND_VALUE = re.compile(r"([a-z_.]+)=(.*?): ")


def run_jobs(jobs: Sequence[Sequence[str]]) -> int:
    """Run the cells of every job (a list of Hydra overrides) as one session; the exit code.

    Raises UsageError before anything is measured.
    """
    first = _compose(list(jobs[0]))
    server = ForkServer(_threads(first))
    try:
        server.start()
        absent = _absent(first)
        fingerprint = server.probe("cpu" if absent else str(first.device.type))
        if absent is not None:
            fingerprint = described(absent, fingerprint)
        return _run(jobs, first, server, fingerprint)
    finally:
        server.stop()


def _run(
    jobs: Sequence[Sequence[str]], first: DictConfig, server: ForkServer, fingerprint: dict[str, Any]
) -> int:
    scale = _scale(first, fingerprint)
    cells: dict[str, Cell] = {}
    refused: dict[str, str] = {}
    lead: DictConfig | None = None
    asked: dict[str, tuple[str, ...]] = {}
    for job in jobs:
        user = [*job, *scale]
        cfg = _compose(user)
        lead = lead or _compose(session_overrides(cfg, user))
        for composed in expand(cfg, user, _compose):
            cell = load_cell(composed, fingerprint)
            _admit(cell, cells, refused, fingerprint)
            asked[cell.id] = _united(asked.get(cell.id, ()), load_passes(composed))
    assert lead is not None
    _refuse_all_unsupported(cells, refused)
    named = list(cells)
    cells = _with_references(str(lead.reference), cells, refused, asked, fingerprint)
    session = _session(lead, jobs, cells, fingerprint, asked)
    check_budget(session.budget_bytes, list(cells.values()))
    check_tracking(session.tracking)
    chosen = list(cells.values())
    store = RecordStore(Path(session.paths.runs) / session.name)
    if session.plan:
        print_plan(chosen, session, refused, store, fingerprint)
        return 0
    report = _Report(session) if session.report else None
    code = run_session(
        chosen,
        session,
        refused=refused,
        command=_command_line(),
        server=server,
        fingerprint=fingerprint,
        tracker=open_tracker(session.tracking, session.paths),
        report=report,
    )
    _refuse_what_matched_nothing(named, store)
    if report is not None and report.answer:
        print(f"\n{_wrapped(report.answer)}")
    return code


def _absent(first: DictConfig) -> HardwareConfig | None:
    """The hardware that is named instead of found; only a prediction can do with that."""
    chosen = load_hardware(first.hardware)
    return chosen if first.mode == "predict" and chosen.name not in ("auto", "cpu") else None


def _refuse_what_matched_nothing(named: Sequence[str], store: RecordStore) -> None:
    """Some rules are known to match nothing only once a step has run: alone that is bad input too."""
    if len(named) != 1:
        return
    (cell,) = named
    for record in store.records():
        if record.cell == cell and record.status == "unsupported" and record.error is not None:
            raise UsageError("policy", policy_label(record.config["policy"]), record.error["message"])


def _compose(overrides: list[str]) -> DictConfig:
    cfg = compose(overrides)
    check_known(cfg, _plain_config(), overrides)
    return cfg


@cache
def _plain_config() -> DictConfig:
    return hydra.compose("config")


def _threads(cfg: DictConfig) -> int:
    threads = cfg.device.threads
    return threads if isinstance(threads, int) and threads > 0 else os.cpu_count() or 1


def _group(name: str) -> list[DictConfig]:
    """Every file of a configuration group but ``auto``."""
    loader = GlobalHydra.instance().config_loader()
    options = [option for option in loader.get_group_options(name) if option != "auto"]
    return [hydra.compose(f"{name}/{option}")[name] for option in options]


def _scale(cfg: DictConfig, fingerprint: dict[str, Any]) -> list[str]:
    """The override that replaces ``scale=auto``; none where a scale was chosen."""
    if cfg.scale.name != "auto":
        return []
    memory = int(fingerprint.get("memory_bytes") or 0)
    return [f"scale={choose_scale(_group('scale'), str(fingerprint['type']), memory)}"]


def _admit(
    cell: Cell, cells: dict[str, Cell], refused: dict[str, str], fingerprint: dict[str, Any]
) -> None:
    if cell.id in cells:
        return
    cells[cell.id] = cell
    try:
        check_policy(cell, here="described" not in fingerprint)
    except Unsupported as problem:
        refused[cell.id] = str(problem)


def _with_references(
    label: str,
    cells: dict[str, Cell],
    refused: dict[str, str],
    asked: dict[str, tuple[str, ...]],
    fingerprint: dict[str, Any],
) -> dict[str, Cell]:
    """``cells`` with the reference policy's ahead of each workload that has none, under the same passes.

    Every answer is relative to that policy. Raises UsageError where ``label`` names no policy to add.
    """
    blocks: dict[str, list[Cell]] = {}
    for cell in cells.values():
        blocks.setdefault(cell.workload_id, []).append(cell)
    added: dict[str, Cell] = {}
    for workload, block in blocks.items():
        alive = any(cell.id not in refused for cell in block)
        if alive and all(cell.policy_label != label for cell in block):
            added[workload] = _reference_of(label, block[0])
            passes = [asked[cell.id] for cell in block]
            asked[added[workload].id] = tuple(p for p in PASSES if any(p in some for some in passes))
    found: dict[str, Cell] = {}
    for cell in cells.values():
        if cell.workload_id in added:
            _admit(added.pop(cell.workload_id), found, refused, fingerprint)
        found[cell.id] = cell
    return found


def _reference_of(label: str, cell: Cell) -> Cell:
    family, options, _ = label.partition("(")
    if not options:
        node: Any = OmegaConf.to_container(_compose([f"policy={family}"]).policy)
        policy = parse_policy(node)
        found = Cell(dataclasses.replace(cell.config, policy=policy))
        if found.policy_label == label:
            return found
    raise UsageError(
        "reference", label, f"no cell of {cell.workload_label} has this policy; add it to the sweep"
    )


def _session(
    lead: DictConfig,
    jobs: Sequence[Sequence[str]],
    cells: dict[str, Cell],
    fingerprint: dict[str, Any],
    asked: dict[str, tuple[str, ...]],
) -> SessionConfig:
    hardware, everywhere = _hardware(lead, fingerprint), load_passes(lead)
    special = {cell: passes for cell, passes in asked.items() if passes != everywhere}
    return load_session(lead, _name(lead, jobs, cells), hardware, fingerprint, special)


def _united(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """Every pass of either, in the order of the passes."""
    return tuple(name for name in PASSES if name in first or name in second)


def _hardware(lead: DictConfig, fingerprint: dict[str, Any]) -> HardwareConfig:
    return match_hardware(lead.hardware, lambda: _group("hardware"), fingerprint)


def _name(lead: DictConfig, jobs: Sequence[Sequence[str]], cells: dict[str, Cell]) -> str:
    """The sweep's folder: its name, and a digest of the user's axes where there are any."""
    name = lead.sweep.name
    if name is None:
        kind = "cell" if len(jobs) == 1 else "multirun"
        return f"{kind}-{digest({'cells': sorted(cells)})[:8]}"
    if any(o.split("=")[0].lstrip("+") == "sweep.name" for o in jobs[0]):
        return str(name)
    own = [o for job in jobs for o in cell_overrides(job)]
    if lead.mode == "predict" and lead.hardware.name != "auto":
        own.append(f"hardware={lead.hardware.name}")
    return f"{name}-{digest({'overrides': own})[:6]}" if own else str(name)


def _refuse_all_unsupported(cells: dict[str, Cell], refused: dict[str, str]) -> None:
    if cells and all(cell in refused for cell in cells):
        cell = next(iter(cells.values()))
        found = _KEY_AND_VALUE.match(refused[cell.id])
        key, value = found.groups() if found else ("policy", cell.policy_label)
        raise UsageError(key, value, refused[cell.id][found.end() if found else 0 :])


def _wrapped(text: str) -> str:
    """``text`` broken between words where a terminal would break it anywhere; whole for other programs."""
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns
    lines = [
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    ]
    return "\n".join(lines)


def _command_line() -> str:
    return shlex.join(["python", "-m", "suite", *sys.argv[1:]])


class _Report:
    """Renders in a process of its own: the parent stays small, and a failure is a warning."""

    def __init__(self, session: SessionConfig) -> None:
        self._out = Path(session.paths.reports) / session.name
        self.answer = ""

    def __call__(self, run_dir: Path) -> Path:
        """Write the report of ``run_dir``, keep its answer, return its page."""
        command = [sys.executable, "-m", "analysis", "report", str(run_dir), "--out", str(self._out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            tail = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise RuntimeError(f"the report was not written: {' '.join(tail)}")
        *answer, page = done.stdout.strip().splitlines()
        self.answer = "\n".join(answer)
        return Path(page)

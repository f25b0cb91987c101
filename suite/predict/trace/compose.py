"""Two training steps of a cell, traced: see :func:`trace_step`."""

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from suite.config.schema import CellConfig
from suite.measure.places import place_of
from suite.measure.work import Work
from suite.policies import Entry, Region
from suite.policies.making import RESTORED
from suite.predict.trace.expand import NotComposable, Renaming, expand
from suite.predict.trace.forward_backward import RawTrace, run
from suite.predict.trace.optimizer import trace_optimizer
from suite.predict.trace.pattern import Shape, shape_of
from suite.predict.trace.step import OperatorRun, StepTrace, Target
from suite.predict.trace.steps import Static, Steps, lay_out_steps

_ENDS = (1, 2, 3)
_BLOCK = re.compile(r"^blocks\.(\d+)")


def trace_step(config: CellConfig, *, whole: bool = False, target: Target | None = None) -> StepTrace:
    """Trace the cell's first and steady step; nothing is allocated, and nothing computed.

    Blocks that are alike are traced a few times and laid out as often as the model has them. It is tried
    with one of its own kind at each end first, then with more: a policy that fetches ahead shows what it
    does in the middle only where there are two neighbours on each side. One under which no two blocks are
    alike is traced over the whole depth, as is every cell with ``whole``. ``target`` is the device, where
    that is not this CPU.
    """
    for ends in () if whole else _ENDS:
        shape = shape_of(config, ends)
        if shape is None or shape.depth == config.model.n_layers:
            break
        with contextlib.suppress(NotComposable):
            return _trace(config, shape, target)
    return _trace(config, _as_it_is(config), target)


def _as_it_is(config: CellConfig) -> Shape:
    pieces = tuple((index,) for index in range(config.model.n_layers))
    return Shape(None, pieces, pieces, tuple(range(len(pieces))))


def _trace(config: CellConfig, shape: Shape, target: Target | None) -> StepTrace:
    model = replace(config.model, n_layers=shape.depth)
    raw = run(replace(config, model=model), shape.parts, shape.reduced, target)
    expanded = expand(raw, shape)
    static = Static.of(raw, config.model.n_layers)
    optimizer = trace_optimizer(static.shapes, config.optimizer)
    names = Renaming(shape)
    steps = lay_out_steps(expanded, static, optimizer)
    return StepTrace(
        log=steps.log,
        host_log=steps.host_log,
        host_figures=_host_figures(raw, steps),
        operators=_operators(raw, names) + optimizer.operators,
        work=_work(raw, names),
        regions=_regions(raw.applied.regions, names),
        entries=_entries(raw, names),
        traced_blocks=shape.depth,
    )


def _operators(raw: RawTrace, names: Renaming) -> Counter[OperatorRun]:
    found: Counter[OperatorRun] = Counter()
    for stretch in raw.stretches:
        times = len(names.copies[stretch.piece]) if stretch.kind != "edge" else 1
        for run_, count in stretch.operators.items():
            found[replace(run_, module=place_of(run_.module))] += count * times
    return found


def _work(raw: RawTrace, names: Renaming) -> list[Work]:
    found: dict[tuple[str, str], Work] = {}
    for stretch in raw.stretches:
        for run_, count in stretch.operators.items():
            if run_.phase == "backward" and not run_.replay:
                continue
            for place in names.copies[stretch.piece] if stretch.kind != "edge" else [-1]:
                module = names.name(run_.module, place)
                work = found.setdefault((module, run_.operator), Work(module, run_.operator))
                if run_.replay:
                    work.replay_calls += count
                    work.replay_flops += count * run_.flops
                else:
                    work.forward_calls += count
                    work.forward_flops += count * run_.flops
    return list(found.values())


def _host_figures(raw: RawTrace, steps: Steps) -> dict[str, float]:
    """As the ledger of a measured step has them."""
    if raw.applied.host is None:
        return {}
    steady = steps.host_log.events[steps.host_log.step_starts[1] :]
    sizes = [event.sign * steps.host_log.allocations[event.index].nbytes for event in steady]
    begin = steps.log.step_starts[1]
    born = (steps.log.allocations[e.index] for e in steps.log.events[begin:] if e.sign > 0)
    # What is left out for lack of room is the same in every trace: with a cap, all of it is traced.
    return {
        "host_peak_bytes": max(itertools.accumulate(sizes, initial=0)),
        "host_moved_bytes": sum(size for size in sizes if size > 0),
        "host_returned_bytes": sum(a.nbytes for a in born if a.kind == RESTORED),
        "host_over_cap_bytes": raw.applied.host.figures()["host_over_cap_bytes"],
    }


def _regions(regions: Sequence[Region], names: Renaming) -> tuple[Region, ...]:
    """Those of the whole trunk, in no order."""
    found: list[Region] = []
    for region in regions:
        for place in names.places_of(region.modules[0]):
            modules = tuple(names.name(module, place) for module in region.modules)
            found.append(Region(_label(region.label, modules, names, place), modules))
    return tuple(found)


def _label(label: str, modules: tuple[str, ...], names: Renaming, place: int) -> str:
    if "-" in label:  # blocks.0-2
        return f"{modules[0]}-{modules[-1].removeprefix('blocks.')}"
    return "+".join(names.name(part, place) for part in label.split("+"))


def _entries(raw: RawTrace, names: Renaming) -> list[Entry]:
    """The rules with the whole trunk's counts; those that a shape split in parts are one again."""
    before, after = raw.counted
    totals = [list(counts) for counts in after]
    last = before
    for stretch in raw.stretches:
        if stretch.kind == "forward":
            more = len(names.copies[stretch.piece]) - 1
            for total, now, then in zip(totals, stretch.counted, last, strict=True):
                total[0] += more * (now[0] - then[0])
                total[1] += more * (now[1] - then[1])
            last = stretch.counted
    found: dict[str, Entry] = {}
    for entry, (hits, host_bytes) in zip(raw.applied.entries, totals, strict=True):
        scope = tuple(dict.fromkeys(names.name(g, p) for g in entry.scope for p in names.places_of(g)))
        whole = replace(entry, hits=hits, host_bytes=host_bytes, scope=scope)
        known = found.get(entry.name)
        if known is not None and known.operators == whole.operators:
            whole = replace(
                known,
                hits=known.hits + hits,
                host_bytes=known.host_bytes + host_bytes,
                scope=(*known.scope, *scope),
            )
        found[entry.name] = whole
    return list(found.values())

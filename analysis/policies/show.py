"""The policies of a workload as a table for the terminal, as Markdown, JSON or CSV."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.policies.legend import legend_of
from analysis.policies.rows import Row, rows_of
from analysis.policies.workload import workload_of
from suite.cell import Cell
from suite.errors import UsageError
from suite.predict.policies.notation import symbols_of

_MIB = 2**20
# Below this many columns the formulas go under the policy's name and figures stand in pairs.
_WIDE = 132
# A formula or a reason is wrapped beyond this.
_FORMULA = 60
# Where nobody's terminal limits it: nothing is wrapped.
_UNLIMITED = 240
_EXTRA_SPACE = re.compile(r" {2,}")


@dataclass(frozen=True)
class Sheet:
    """One workload under every policy."""

    cell: Cell
    rows: list[Row]

    @property
    def title(self) -> str:
        """``llama3_8b s=8192 b=1 bf16-true sdpa cuda, 32 blocks``."""
        config = self.cell.config
        sizes = f"s={config.seq_len} b={config.batch_size}"
        kernels = f"{config.precision} {config.attention} {config.device}"
        packed = f" data={config.data.kind}" if config.data.kind != "synthetic" else ""
        return f"{config.model.name} {sizes} {kernels}{packed}, {config.model.n_layers} blocks"


def show_policies(overrides: Sequence[str], form: str) -> None:
    """Print every policy on the workload of ``overrides``. Raises UsageError."""
    if form not in FORMATS:
        raise UsageError("--format", form, f"expected one of {', '.join(FORMATS)}")
    cell, own = workload_of(overrides)
    FORMATS[form](Sheet(cell, rows_of(cell, own=own)))


def _table(sheet: Sheet) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_UNLIMITED)
    wide = console.width >= _WIDE
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold")
    _fill(table, sheet.rows, wide=wide)
    console.print(Text(sheet.title, style="bold"))
    console.print(table)
    for line in legend_of(sheet.cell.config, sheet.rows):
        console.print(Text(line, style="dim"))


def _markdown(sheet: Sheet) -> None:
    table = Table(box=box.MARKDOWN)
    _fill(table, sheet.rows, wide=True)
    console = Console(width=_UNLIMITED * 2, no_color=True, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    heads = [" ".join(str(column.header).split()) for column in table.columns]
    rules = ["---:" if column.justify == "right" else "---" for column in table.columns]
    body = [line for line in captured.get().splitlines() if line.startswith("|")]
    body = body[next(i for i, line in enumerate(body) if line.startswith("|-")) + 1 :]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join(rules)} |", *map(_squeezed, body)]
    notes = [f"- {_squeezed(line)}" for line in legend_of(sheet.cell.config, sheet.rows)]
    print("\n".join([f"### {sheet.title}", "", *lines, "", *notes]).replace("*", "\\*"))


def _json(sheet: Sheet) -> None:
    config = sheet.cell.config
    symbols = symbols_of(config)
    told = {
        name: {"value": float(s.value), "unit": s.unit, "meaning": s.meaning, "definition": s.definition}
        for name, s in symbols.items()
    }
    workload = {name: value for name, value in sheet.cell.resolved.items() if name != "policy"}
    rows = [asdict(row) for row in sheet.rows]
    print(
        json.dumps({"workload": workload, "symbols": told, "policies": rows}, indent=1, ensure_ascii=False)
    )


def _csv(sheet: Sheet) -> None:
    rows = [asdict(row) | {"options": json.dumps(row.options)} for row in sheet.rows]
    print(pd.DataFrame(rows).to_csv(index=False), end="")


FORMATS: dict[str, Callable[[Sheet], None]] = {
    "table": _table,
    "markdown": _markdown,
    "json": _json,
    "csv": _csv,
}


def _fill(table: Table, rows: Sequence[Row], *, wide: bool) -> None:
    hosted, flat = any(row.host_bytes for row in rows), table.box is box.MARKDOWN
    table.add_column("policy", overflow="fold", min_width=24)
    if wide:
        heads = ["saved/\nblock", "MiB/\nblock", "in all,\nMiB", "rebuilt,\nMiB", "replay/\nforward"]
        heads += ["replay/\nstep", *(["host,\nMiB"] if hosted else [])]
    else:
        heads = ["saved a\nblock", "in all,\nMiB", f"rebuilt,{chr(10) + 'host,' if hosted else ''}\nMiB"]
        heads.append("replay of\nforward,\nstep")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    if wide:
        for head in ("saved of a block", "runs again"):
            table.add_column(head, overflow="fold", max_width=None if flat else _FORMULA)
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        figures = _figures(row, wide=wide, hosted=hosted)
        last = following is not None and following.family != row.family
        section = last and not flat
        if wide:
            formulas = [Text(row.reason or row.saved_formula), Text(row.work_formula or "-")]
            table.add_row(
                _name(row), *map(Text, figures), *formulas, style=_style(row), end_section=section
            )
        else:
            table.add_row(_stacked(row), *map(Text, figures), style=_style(row), end_section=section)


def _figures(row: Row, *, wide: bool, hosted: bool) -> list[str]:
    if row.saved_units is None:
        return ["-"] * (6 + hosted if wide else 4)
    units = f"{'' if row.exact else '≈'}{row.saved_units:.2f}u"
    block, replay = _mib(row.saved_per_block_bytes), f"{(row.replay_ratio or 0) * 100:.1f} %"
    step = f"+{(row.step_ratio or 0) * 100:.1f} %"
    saved, rebuilt = _mib(row.saved_bytes), _mib(row.transient_bytes)
    host = [_mib(row.host_bytes) if row.host_bytes else "-"] if hosted else []
    if wide:
        return [units, block, saved, rebuilt, replay, step, *host]
    return [f"{units}\n{block} MiB", saved, "\n".join([rebuilt, *host]), f"{replay}\n{step}"]


def _name(row: Row) -> Text:
    marks = f"{' *' if row.on_front else ''}{' ~' if row.rounded else ''}{' (yours)' if row.own else ''}"
    return Text.assemble((row.name, "bold" if row.on_front or row.own else ""), marks)


def _stacked(row: Row) -> Text:
    name = _name(row)
    for line in (row.reason or row.saved_formula, f"again {row.work_formula}"):
        if line and not line.endswith(("again ", "again 0")):
            name.append(f"\n  {line}", style="dim")
    return name


def _style(row: Row) -> str:
    return "dim" if row.reason else ""


def _squeezed(line: str) -> str:
    return _EXTRA_SPACE.sub(" ", line.strip())


def _mib(count: float | None) -> str:
    if count is None:
        return "-"
    size = count / _MIB
    if not size:
        return "0"
    return f"{size:,.0f}" if size >= 1000 else f"{size:,.1f}" if size >= 1 else f"{size:.3f}"

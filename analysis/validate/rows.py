"""The published measurements as typed rows, exactly as their sources write them."""

import csv
import hashlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from suite.errors import UsageError

MEASUREMENTS = Path(__file__).resolve().parent.parent / "refdata" / "all_measurements.csv"
# What the sources mean by their units; ``MB`` and ``GB`` are decimal unless a module knows better.
UNIT_BYTES = {
    "bytes": 1,
    "MB": 10**6,
    "GB": 10**9,
    "MiB": 2**20,
    "GiB": 2**30,
}


@dataclass(frozen=True)
class Row:
    """One published figure or pair of figures, with the configuration as far as it is stated.

    Numbers are None where the source says nothing. ``mem_text`` and ``time_text`` are the figures as
    written, of which some are no numbers (``>80``, ``2 to 3``). ``sp`` is 1, 0 or None.
    """

    row_id: str
    status: str
    source: str
    source_ref: str
    model: str
    params_b: float | None
    layers: int | None
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    ffn_hidden: int | None
    vocab: int | None
    seq: int | None
    micro_batch: int | None
    grad_accum: int | None
    global_batch: int | None
    tp: int | None
    sp: int | None
    pp: int | None
    vpp: int | None
    dp_or_fsdp: int | None
    cp: int | None
    ep: int | None
    n_gpus: int | None
    gpu: str
    precision: str
    optimizer: str
    attention: str
    compile: str
    ac_mode: str
    ac_detail: str
    phase: str
    mem_value: float | None
    mem_text: str
    mem_unit: str
    mem_kind: str
    time_value: float | None
    time_text: str
    time_unit: str
    tok_per_s_per_gpu: float | None
    mfu_pct: float | None
    hfu_pct: float | None
    config_status: str
    note: str

    @property
    def file(self) -> str:
        """The source's short name: the row's id without its number, ``torchtitan``."""
        return self.row_id.rsplit("-", 1)[0]

    @property
    def mem_bytes(self) -> float | None:
        """The memory in bytes, by the unit that the source writes; None where it is no amount of bytes."""
        factor = UNIT_BYTES.get(self.mem_unit)
        return None if self.mem_value is None or factor is None else self.mem_value * factor


def half_of(row_id: str) -> str:
    """``A`` or ``B``: a fixed half of the rows: what is chosen on one is judged on the other."""
    return "AB"[hashlib.sha256(row_id.encode()).digest()[0] % 2]


def read_rows(path: Path = MEASUREMENTS) -> list[Row]:
    """Every row of the table, in its order. Raises UsageError if the file is not there."""
    if not path.is_file():
        raise UsageError("--measurements", path, "no such file")
    with path.open(newline="", encoding="utf-8") as text:
        return [_row(line) for line in csv.DictReader(text)]


def _row(line: dict[str, str]) -> Row:
    values: dict[str, Any] = {}
    for field in fields(Row):
        if field.name in ("mem_text", "time_text"):
            values[field.name] = line[field.name.replace("_text", "_value")]
        elif field.type is str:
            values[field.name] = line[field.name]
        else:
            values[field.name] = _number(line[field.name], whole=field.type == (int | None))
    return Row(**values)


def _number(text: str, *, whole: bool) -> float | int | None:
    try:
        return (int(text) if whole else float(text)) if text else None
    except ValueError:
        return None

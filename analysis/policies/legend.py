"""What the symbols of the formulas mean, and what each is worth on this workload."""

import re
from collections.abc import Iterable, Sequence

from analysis.policies.rows import Row
from suite.config.schema import CellConfig
from suite.models.shape import FAMILIES
from suite.predict.estimate import saved_outside_blocks
from suite.predict.policies.notation import Symbol, symbols_of
from suite.predict.tensors import fused_attention, kernels_of
from suite.units import show_bytes, show_count

_NAMES = re.compile(r"Fqkv|Fgu|Fsd|F[gsodhr]|LSE|RSTD|[urκφξANCSDPR]")


def legend_of(config: CellConfig, rows: Sequence[Row]) -> list[str]:
    """One line for each symbol in use, then one for each column and mark that needs explaining."""
    return [*_symbol_lines(config, rows), *_notes(config, rows)]


def _symbol_lines(config: CellConfig, rows: Iterable[Row]) -> list[str]:
    symbols = symbols_of(config)
    texts = [text for row in rows for text in (row.saved_formula, row.work_formula)]
    used = {"u", "A", "Fg", "Fs"} | {name for text in texts for name in _NAMES.findall(text)}
    for name in list(symbols):
        if name in used:
            used.update(n for n in _NAMES.findall(_formal(symbols[name].definition)) if n in symbols)
    # A second time: what a definition uses may be defined by further symbols.
    used.update(n for s in used & symbols.keys() for n in _NAMES.findall(_formal(symbols[s].definition)))
    shown = [(name, symbol) for name, symbol in symbols.items() if name in used]
    lines = [(name, _value(symbol, symbols["u"]), symbol) for name, symbol in shown]
    wide = max(len(value) for _, value, _ in lines)
    return [
        f"{name:<4} = {value:<{wide}}  {': '.join(filter(None, (symbol.meaning, symbol.definition)))}"
        for name, value, symbol in lines
    ]


def _formal(definition: str) -> str:
    """A definition from other symbols; one from the model's sizes has no symbol in it."""
    return "" if "·" in definition else definition


def _value(symbol: Symbol, unit: Symbol) -> str:
    if symbol.unit == "bytes":
        return f"{show_bytes(float(symbol.value))} ({float(symbol.value / unit.value):.3g}u)"
    return f"{show_count(float(symbol.value))}FLOP" if symbol.unit else f"{float(symbol.value):.4g}"


def _notes(config: CellConfig, rows: Sequence[Row]) -> list[str]:
    norm = "fused" if kernels_of(config).fused_rms_norm else "composite"
    attention = "fused" if fused_attention(config) else "plain matrix products"
    kernels = [f"attention {attention}"]
    if FAMILIES[config.model.family].rms_norm:
        kernels.insert(0, f"RMSNorm {norm}")
    outside = saved_outside_blocks(config)
    notes = [
        f"Kernels assumed on {config.device}: {', '.join(kernels)}.",
        f"In all: the blocks and {show_bytes(outside)} outside them (embedding, last norm, logits; "
        "tiled losses keep no logits). Rebuilt: what a region holds at most while it is in backward.",
        "Replay: FLOPs that run again, of the blocks' forwards and of the step's model FLOPs; "
        "matrix products and attention only.",
    ]
    if any(row.on_front for row in rows):
        notes.append(
            "* No other policy needs both less memory (saved and rebuilt) and less replay, of those that "
            "are exact, round nothing and use no host memory."
        )
    if any("≈" in row.saved_formula or not row.exact for row in rows):
        notes.append(
            "≈ An estimate; before a formula: small terms are left out of the text, not of the figures. "
            "All others are exact for these kernels."
        )
    if any(row.rounded for row in rows):
        notes.append("~ What is kept is rounded: gradients differ beyond the order of sums.")
    return notes

"""Formulas put together from terms, as a person would write them."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from suite.config.schema import CellConfig
from suite.models.shape import FAMILIES
from suite.predict.flops import block_flops
from suite.predict.tensors import operator_outputs

_BRACKETED = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True)
class Formula:
    """Both are of one block, the mean over the blocks that the policy is for.

    Attributes:
        saved: bytes kept on the device when the forward ends, in the symbols of
            :mod:`suite.predict.policies.notation`.
        work: FLOPs that replays execute.
        exact: nothing is left out of the text for the sake of reading it.
    """

    saved: str
    work: str = "0"
    exact: bool = True


def plus(terms: Iterable[str]) -> str:
    """Their sum; ``0`` of none."""
    return " + ".join(term for term in terms if term != "0") or "0"


def less(terms: Iterable[str]) -> str:
    """``A`` without these."""
    return " - ".join(["A", *terms])


def times(count: int, term: str) -> str:
    """``2φu``, ``3(A - LSE)``, ``A``."""
    if count == 1 or term == "0":
        return term
    outside = _BRACKETED.sub("", term)
    factor = " " not in outside and "/" not in outside and not term[0].isdigit()
    return f"{count}{term}" if factor or term[0] == "(" else f"{count}({term})"


def grouped(term: str) -> str:
    """In parentheses if it is a sum."""
    return f"({term})" if " " in term else term


def mixture(parts: Iterable[tuple[int, Formula]], depth: int) -> Formula:
    """The mean over blocks of which so many are as each formula says."""
    there = [(count, formula) for count, formula in parts if count]
    if len(there) == 1:
        return there[0][1]
    return Formula(
        _mean([times(count, formula.saved) for count, formula in there], depth),
        _mean([times(count, formula.work) for count, formula in there], depth),
        exact=all(formula.exact for _, formula in there),
    )


def _mean(terms: Iterable[str], depth: int) -> str:
    total = plus(terms)
    if total == "0":
        return total
    # A sum inside brackets alone is a factor already.
    return f"[{total}]/{depth}" if " " in _BRACKETED.sub("", total) else f"{total}/{depth}"


def ffn(config: CellConfig, *parts: str) -> str:
    """Outputs of the MLP's first products (gate_up) and of its activation (act), all active experts'."""
    return times(len(parts) * (2 if FAMILIES[config.model.family].gated else 1), "φu")


def masks(config: CellConfig) -> list[str]:
    """The dropout masks of a block."""
    return ["2D"] if config.model.dropout else []


def block_again(config: CellConfig, *, early_stop: bool = True) -> str:
    """A block's replay: up to the last product that nothing in backward reads, or all of it."""
    unread = block_flops(config).unread
    if not early_stop or config.model.dropout or not unread:
        return "Fg + Fs"
    return f"Fg - {'Fd' if 'down' in unread else 'Fsd'} + Fs"


def kept_outputs(
    config: CellConfig,
    products: Collection[str],
    core: list[str],
    *,
    also: Iterable[str] = (),
    host: Collection[str] = (),
    core_on_host: bool = False,
) -> Formula:
    """A recomputed block that keeps these products and these terms of attention.

    Args:
        config: the workload.
        products: by the names of :func:`suite.predict.tensors.operator_outputs`.
        core: what is kept of attention; it does not run again then, but for ``also``.
        also: runs again all the same.
        host: those of the products that are not on the device.
        core_on_host: nor is ``core``.
    """
    here = set(products) - set(host)
    model, family = config.model, FAMILIES[config.model.family]
    whole = 1 + len(here & {"out", "shared_down"})
    if "down" in here:
        whole += model.top_k if family.routed else 1
    shares = [str(whole), *(["r(1+2κ)"] if "qkv" in here else []), *(["ξ"] if "router" in here else [])]
    shares += ["2φ" if family.gated else "φ"] if "up" in here else []
    inputs = f"u[{' + '.join(shares)}]" if len(shares) > 1 else times(whole, "u")
    saved = plus([inputs, *([] if core_on_host else core)])
    return Formula(saved, plus([*_products_again(config, products), *([] if core else ["Fs"]), *also]))


def _products_again(config: CellConfig, kept: Collection[str]) -> list[str]:
    """Terms of the products that are not kept, in forward order; what nothing reads never runs again."""
    unread = set() if config.model.dropout else block_flops(config).unread.keys()
    left = [p for p in operator_outputs(config)["mm"] if p not in kept and p not in unread]
    if not kept:
        return [block_again(config).removesuffix(" + Fs")]
    # The shared experts' products are in the terms of the routed ones.
    down = "Fd - Fsd" if "shared_down" in unread else "Fd"
    names = {"qkv": "Fqkv", "out": "Fo", "router": "Fr", "up": "Fgu", "down": down}
    if "down" not in left and "shared_down" in left:
        return [*(names[p] for p in left if p in names), "Fsd"]
    return [names[p] for p in left if p in names]

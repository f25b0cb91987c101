"""The formulas against published ones: Korthikanti et al. 2022, and the catalogue's Llama block."""

import dataclasses

from make_cell import make_cell

from suite.predict.tensors import block_tensors, total


def _on_accelerator(model: str, **changes: object) -> tuple[int, int]:
    """Bytes a block keeps with a GPU's fused norms and packed masks, and u."""
    cell = make_cell(model, precision="bf16-true", **changes)
    config = dataclasses.replace(cell.config, device="cuda")
    rows = config.batch_size * config.seq_len
    return total(block_tensors(config)), 2 * rows * config.model.d_model


def test_gpt_block_with_eager_attention_keeps_34_sbh_and_5_as2b() -> None:
    kept, u = _on_accelerator("gpt_22b", attention="eager", seq_len=2048, batch_size=1)
    heads, s = 64, 2048
    published = 34 * u // 2 + 5 * heads * s * s
    statistics = 2 * 2 * 4 * s
    # The paper keeps q; the eager kernel keeps q scaled and q itself.
    assert kept == published + statistics + u


def test_llama_block_with_fused_kernels() -> None:
    kept, u = _on_accelerator("llama3_8b", attention="sdpa", seq_len=4096, batch_size=1)
    phi, kappa, heads, s = 14336 / 4096, 8 / 32, 32, 4096
    lse, rstd = 4 * heads * s, 2 * 4 * s
    assert kept == int(u * (4 + (1 + 2 * kappa) + 1 + 4 * phi)) + lse + rstd

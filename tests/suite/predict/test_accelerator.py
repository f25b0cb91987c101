"""A card's memory without a card: its allocator's rules, its kernels, and one rank's share of a model."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_cell import make_cell

from suite.config.schema import CellConfig, HardwareConfig, ParallelConfig
from suite.errors import UsageError
from suite.predict.accelerator.allocator import CachingAllocator
from suite.predict.accelerator.kernels import attention_kernel
from suite.predict.cell import predict_cell
from suite.predict.layout.rank import check_parallel, in_flight, of_rank

_MIB = 1 << 20
_CARD = HardwareConfig(name="card", capability="9.0", memory_bytes=80 << 30)


def _config(**changes: Any) -> CellConfig:
    config = make_cell(model="llama_nano", precision="bf16-true", seq_len=64, **changes).config
    return replace(config, device="cuda")


def _figures(config: CellConfig, **assumptions: Any) -> dict[str, float]:
    return predict_cell(config, hardware=_CARD, assumptions=assumptions).figures


def test_small_blocks_come_from_two_mib_and_large_ones_from_twenty() -> None:
    allocator = CachingAllocator()
    allocator.malloc(1)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (512, 2 * _MIB)
    allocator.malloc(2 * _MIB)
    assert allocator.reserved_bytes == 22 * _MIB
    allocator.malloc(11 * _MIB)  # fits into what is left of the twenty
    assert allocator.reserved_bytes == 22 * _MIB
    allocator.malloc(11 * _MIB)
    assert allocator.reserved_bytes == (22 + 12) * _MIB


@given(st.lists(st.tuples(st.integers(1, 40 * _MIB), st.booleans()), max_size=40))
def test_what_is_freed_can_be_had_again(requests: list[tuple[int, bool]]) -> None:
    allocator, held = CachingAllocator(), []
    for nbytes, keep in requests:
        block = allocator.malloc(nbytes)
        assert block.size >= nbytes
        if keep:
            held.append((block, nbytes))
        else:
            allocator.release(block, -(-nbytes // 512) * 512)
    assert allocator.allocated_bytes == sum(block.size for block, _ in held)
    assert allocator.allocated_bytes <= allocator.reserved_bytes
    reserved = allocator.reserved_bytes
    for block, nbytes in held:
        allocator.release(block, -(-nbytes // 512) * 512)
    assert allocator.allocated_bytes == 0
    if held:
        allocator.malloc(max(nbytes for _, nbytes in held))
    assert allocator.reserved_bytes == reserved


def test_a_card_keeps_less_of_a_norm_than_the_cpu_does() -> None:
    """Catalogue: 25.05 u with the composite RMSNorm, 18.80 u with the fused one: 6 u of a block's input."""
    fused, composite = (_figures(_config(), fused_norms=value)["saved_bytes"] for value in (True, False))
    assert fused < composite


def test_the_kernel_of_attention_follows_from_the_inputs() -> None:
    config = _config()
    assert attention_kernel(config) == "flash"
    wide = replace(config, precision="fp32", model=replace(config.model, n_kv_heads=config.model.n_heads))
    assert attention_kernel(wide) == "efficient"
    shared = replace(wide, model=replace(config.model, n_kv_heads=1))
    assert attention_kernel(shared) == "math"


def test_the_workspace_is_in_the_peak_and_the_context_beside_it() -> None:
    less, more = (_figures(_config(), workspace_bytes=n * _MIB) for n in (4, 8))
    assert more["peak_bytes"] - less["peak_bytes"] == 4 * _MIB
    low, high = (_figures(_config(), context_bytes=n * _MIB) for n in (100, 300))
    assert high["device_used_bytes"] - low["device_used_bytes"] == 200 * _MIB
    assert low["peak_bytes"] == high["peak_bytes"]


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_what_is_shared_out_is_held_once_by_all(zero: int) -> None:
    alone = _figures(_config())
    shared = _figures(_config(parallel=ParallelConfig(dp=4, zero=zero)))
    parts = {"optimizer_state_bytes": 1, "parameter_bytes": 3}
    for name, level in parts.items():
        expected = alone[name] / 4 if zero >= level else alone[name]
        assert shared[name] == pytest.approx(expected, abs=256)


def test_the_megatron_recipe_holds_eighteen_bytes_a_parameter() -> None:
    alone = _figures(_config())
    recipe = _figures(_config(parallel=ParallelConfig(recipe="megatron")))
    elements = alone["parameter_bytes"] // 2
    buffers = alone["buffer_bytes"]
    assert recipe["static_bytes"] == 18 * elements + buffers


def test_a_rank_has_its_part_of_the_heads_the_mlp_and_the_sequence() -> None:
    config = _config(parallel=ParallelConfig(tp=2, cp=2, pp=2))
    local = of_rank(config)
    assert local.model.n_heads * 2 == config.model.n_heads
    assert local.model.d_ff * 2 == config.model.d_ff
    assert local.model.n_layers * 2 == config.model.n_layers
    assert local.seq_len * 2 == config.seq_len


def test_the_first_stage_holds_most_micro_batches() -> None:
    spread = ParallelConfig(pp=4, micro_batches=8)
    assert [in_flight(replace(spread, stage=stage)) for stage in range(4)] == [4, 3, 2, 1]
    assert in_flight(replace(spread, vpp=2)) == 4 * (1 + 3 / 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tp": 5}, "parallel.tp=5: must divide model.n_heads"),
        ({"pp": 3}, "parallel.pp=3: must divide model.n_layers"),
        ({"sp": True}, "sequence parallel needs parallel.tp > 1"),
        ({"zero": 4}, "parallel.zero=4: expected 0, 1, 2 or 3"),
        ({"ep": 2}, "has no experts"),
        ({"pp": 2, "stage": 2}, "parallel.stage=2: expected 0 to 1"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_parallel(_config(parallel=ParallelConfig(**changes)))
    assert message in str(caught.value)

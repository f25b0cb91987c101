"""CUDA's caching allocator, replayed over a log of allocations.

Sizes and rules as in ``c10/cuda/CUDACachingAllocator.cpp`` of torch 2.13 with its default settings: sizes
are rounded to 512 bytes; up to 1 MiB come from segments of 2 MiB, up to 10 MiB from segments of 20 MiB,
larger ones from a segment of their own in steps of 2 MiB; the smallest free block that fits is taken, and
split if what is left over is worth it.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from suite.measure.tracker import MemoryLog

_MIB = 1 << 20
_SMALL = _MIB
_SMALL_SEGMENT = 2 * _MIB
_LARGE_SEGMENT = 20 * _MIB
_LARGE_FROM = 10 * _MIB
_SEGMENT_STEP = 2 * _MIB


@dataclass(slots=True)
class _Block:
    start: int
    size: int
    free: bool
    previous: "_Block | None" = None
    next: "_Block | None" = None


@dataclass
class _Pool:
    small: bool
    # Free blocks by size, then address.
    free: list[tuple[int, int]] = field(default_factory=list)
    blocks: dict[int, _Block] = field(default_factory=dict)


class CachingAllocator:
    """Bytes in blocks that are in use, and in segments; neither has an upper limit."""

    def __init__(self, rounding_bytes: int = 512) -> None:
        self.allocated_bytes = self.reserved_bytes = 0
        self._rounding = rounding_bytes
        self._pools = _Pool(True), _Pool(False)
        self._top = 0

    def malloc(self, nbytes: int) -> _Block:
        """A block of at least ``nbytes``."""
        size = max(self._rounding, -(-nbytes // self._rounding) * self._rounding)
        pool = self._pools[0 if size <= _SMALL else 1]
        place = bisect_left(pool.free, (size, -1))
        block = (
            pool.blocks[pool.free.pop(place)[1]] if place < len(pool.free) else self._segment(pool, size)
        )
        block.free = False
        left = block.size - size
        if left >= (self._rounding if pool.small else _SMALL + 1):
            rest = _Block(block.start + size, left, True, block, block.next)
            if block.next is not None:
                block.next.previous = rest
            block.next, block.size = rest, size
            pool.blocks[rest.start] = rest
            insort(pool.free, (left, rest.start))
        self.allocated_bytes += block.size
        return block

    def release(self, block: _Block, nbytes: int) -> None:
        """The block of ``nbytes`` is free again, and one with its free neighbours."""
        self.allocated_bytes -= block.size
        pool = self._pools[0 if nbytes <= _SMALL else 1]
        before, after = block.previous, block.next
        if after is not None and after.free:
            self._take_out(pool, after)
            block.size += after.size
            block.next = after.next
            if after.next is not None:
                after.next.previous = block
        if before is not None and before.free:
            self._take_out(pool, before)
            del pool.blocks[block.start]
            before.size += block.size
            before.next = block.next
            if block.next is not None:
                block.next.previous = before
            pool.blocks[before.start] = block = before
        block.free = True
        pool.blocks[block.start] = block
        insort(pool.free, (block.size, block.start))

    def _take_out(self, pool: _Pool, block: _Block) -> None:
        del pool.free[bisect_left(pool.free, (block.size, block.start))]
        del pool.blocks[block.start]

    def _segment(self, pool: _Pool, size: int) -> _Block:
        if size <= _SMALL:
            length = _SMALL_SEGMENT
        elif size < _LARGE_FROM:
            length = _LARGE_SEGMENT
        else:
            length = -(-size // _SEGMENT_STEP) * _SEGMENT_STEP
        block = _Block(self._top, length, True)
        self._top += length
        self.reserved_bytes += length
        pool.blocks[block.start] = block
        return block


@dataclass(frozen=True)
class Replay:
    """Peaks of a steady step.

    Attributes:
        peak_allocated_bytes: in blocks, rounding and what was not worth splitting off included.
        phase_peaks: the same by phase.
        peak_reserved_bytes: in segments, of every step so far: they are not given back.
        least_reserved_bytes: in segments, if none were fragmented (``expandable_segments``).
    """

    peak_allocated_bytes: int
    phase_peaks: dict[str, int]
    peak_reserved_bytes: int
    least_reserved_bytes: int


def replay(log: MemoryLog, *, rounding_bytes: int = 512, resident_bytes: int = 0) -> Replay:
    """Run the log through the allocator; the last step is the steady one.

    ``resident_bytes`` are allocated before everything else and stay, as a library's workspace does.
    """
    allocator = CachingAllocator(rounding_bytes)
    if resident_bytes:
        allocator.malloc(resident_bytes)
    steady = log.step_starts[-1]
    held: dict[int, _Block] = {}
    peak, peaks = 0, dict[str, int]()
    for position, event in enumerate(log.events):
        nbytes = log.allocations[event.index].nbytes
        if event.sign > 0:
            if nbytes:
                held[event.index] = allocator.malloc(nbytes)
        elif event.index in held:
            allocator.release(held.pop(event.index), -(-nbytes // rounding_bytes) * rounding_bytes)
        if position >= steady:
            peak = max(peak, allocator.allocated_bytes)
            peaks[event.phase] = max(peaks.get(event.phase, 0), allocator.allocated_bytes)
    least = -(-peak // _SEGMENT_STEP) * _SEGMENT_STEP
    return Replay(peak, peaks, allocator.reserved_bytes, min(least, allocator.reserved_bytes))

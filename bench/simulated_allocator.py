"""PyTorch's caching allocator on addresses alone, for bench/simulate_verdict.py: rounding, splitting, merging, segments
that are given back before a request is refused, private pools of graphs, and the snapshots that PyTorch writes.

Knows no tensors and no frames beyond what it is given. Expandable segments and `max_split_size_mb` are left out.
"""

import bisect
import pickle
import time

# c10/cuda/CUDACachingAllocator.cpp
MIN_BLOCK = 512
MAX_SMALL = 1 << 20
SMALL_SEGMENT = 2 << 20
LARGE_SEGMENT = 20 << 20
MIN_OWN_SEGMENT = 10 << 20
SEGMENT_ROUND = 2 << 20

MAX_EVENTS = 100_000  # as the hook of `headroom run` asks PyTorch to keep


def round_up(size, unit):
    return -(-size // unit) * unit


def segment_bytes(size):
    """Returns the size of a new segment for a block of that size."""
    if size <= MAX_SMALL:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < MIN_OWN_SEGMENT else round_up(size, SEGMENT_ROUND)


class Block:
    """A part of a segment, between its neighbors `previous` and `next`; free or in use."""

    __slots__ = ("address", "size", "requested", "stream", "is_small", "is_free", "pool")
    __slots__ += ("segment", "previous", "next", "frames")

    def __init__(self, address, size, stream, is_small, segment, pool):
        self.address = address
        self.size = size
        self.stream = stream
        self.is_small = is_small
        self.segment = segment  # (address, size)
        self.pool = pool
        self.is_free = True
        self.previous = self.next = None
        self.requested = 0
        self.frames = []


class Refused(Exception):
    """There is no room for a segment, even after all free segments were given back."""


class Allocator:
    """Memory of `capacity` bytes. `pool` is the number of the private pool that requests go to; 0: none."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.reserved = self.allocated = self.peak_reserved = 0
        self.pool = 0
        self.refusals = 0
        self.refused = 0  # bytes of the segment that was refused last
        self._free = {}  # (is_small, stream, pool) -> sorted [(size, address)]
        self._blocks = {}  # address -> Block
        self._events = []
        self._next_address = 0x7F0000000000
        self._clock_us = int(time.time() * 1e6)

    @property
    def free_bytes(self):
        return self.capacity - self.reserved

    @property
    def private(self):
        """Returns the free bytes in private pools, which are those that PyTorch's error calls allocated there."""
        return sum(size for (_, _, pool), free in self._free.items() if pool for size, _ in free)

    def allocate(self, requested, stream, frames):
        """Returns a block of at least that many bytes. Throws Refused if there is no room."""
        size = max(MIN_BLOCK, round_up(requested, MIN_BLOCK))
        is_small = size <= MAX_SMALL
        free = self._free.setdefault((is_small, stream, self.pool), [])
        best = bisect.bisect_left(free, (size, 0))
        if best < len(free):
            block = self._blocks[free.pop(best)[1]]
        else:
            block = self._new_segment(size, stream, is_small, frames)
        self._split(block, size)
        block.is_free, block.requested, block.frames = False, requested, frames
        self.allocated += block.size
        self._record("alloc", block.address, requested, stream, frames)
        return block

    def deallocate(self, block):
        for action in ("free_requested", "free_completed"):
            self._record(action, block.address, block.requested, block.stream, block.frames)
        self.allocated -= block.size
        block.is_free = True
        for near in (block.previous, block.next):
            if near is not None and near.is_free:
                self._drop_free(near)
                block = self._merge(near, block) if near is block.previous else self._merge(block, near)
        self._add_free(block)

    def release_cached(self, frames=()):
        """Gives back every segment that is wholly free, as torch.cuda.empty_cache() does."""
        for (_, stream, pool), free in self._free.items():
            if pool:
                continue
            for size, address in list(free):
                block = self._blocks[address]
                if block.previous is None and block.next is None:
                    self._drop_free(block)
                    del self._blocks[address]
                    self.reserved -= size
                    self._record("segment_free", address, size, stream, list(frames))

    def write_snapshot(self, path):
        """Writes what torch.cuda.memory._dump_snapshot would."""
        segments = {}
        for block in sorted(self._blocks.values(), key=lambda block: block.address):
            if block.segment[0] not in segments:
                segments[block.segment[0]] = _described_segment(block)
            _add_block(segments[block.segment[0]], block)
        settings = {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": False,
            "roundup_power2_divisions": {},
        }
        snapshot = {
            "segments": list(segments.values()),
            "device_traces": [self._events[-MAX_EVENTS:]],
            "allocator_settings": settings,
            "external_annotations": [],
        }
        with open(path, "wb") as file:
            pickle.dump(snapshot, file)

    def _new_segment(self, size, stream, is_small, frames):
        segment = segment_bytes(size)
        if segment > self.free_bytes:
            self.release_cached(frames)
        if segment > self.free_bytes:
            self.refusals += 1
            self.refused = segment
            self._record("oom", self.free_bytes, size, stream, frames, "device_free")
            raise Refused(segment)
        address = self._next_address
        self._next_address += segment + SEGMENT_ROUND  # a gap: segments never touch
        self.reserved += segment
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self._record("segment_alloc", address, segment, stream, frames)
        block = self._blocks[address] = Block(address, segment, stream, is_small, (address, segment), self.pool)
        return block

    def _split(self, block, size):
        rest = block.size - size
        if rest < (MIN_BLOCK if block.is_small else MAX_SMALL + 1):
            return
        other = Block(block.address + size, rest, block.stream, block.is_small, block.segment, block.pool)
        other.previous, other.next = block, block.next
        if other.next:
            other.next.previous = other
        block.next, block.size = other, size
        self._blocks[other.address] = other
        self._add_free(other)

    def _merge(self, first, second):
        del self._blocks[second.address]
        first.size += second.size
        first.next = second.next
        if first.next:
            first.next.previous = first
        first.is_free = True
        return first

    def _add_free(self, block):
        free = self._free.setdefault((block.is_small, block.stream, block.pool), [])
        bisect.insort(free, (block.size, block.address))

    def _drop_free(self, block):
        free = self._free[block.is_small, block.stream, block.pool]
        free.pop(bisect.bisect_left(free, (block.size, block.address)))

    def _record(self, action, address, size, stream, frames, address_key="addr"):
        self._clock_us += 1
        event = {"action": action, address_key: address, "size": size, "stream": stream, "time_us": self._clock_us}
        self._events.append({**event, "compile_context": "N/A", "user_metadata": "", "frames": frames})


def _described_segment(block):
    return {
        "device": 0,
        "address": block.segment[0],
        "total_size": block.segment[1],
        "allocated_size": 0,
        "active_size": 0,
        "requested_size": 0,
        "stream": block.stream,
        "segment_type": "small" if block.is_small else "large",
        "segment_pool_id": (0, block.pool),
        "is_expandable": False,
        "blocks": [],
        "frames": [],
    }


def _add_block(segment, block):
    if not block.is_free:
        segment["allocated_size"] += block.size
        segment["active_size"] += block.size
        segment["requested_size"] += block.requested
    segment["blocks"].append(
        {
            "address": block.address,
            "size": block.size,
            "requested_size": block.size if block.is_free else block.requested,
            "state": "inactive" if block.is_free else "active_allocated",
            "frames": [] if block.is_free else block.frames,
        }
    )

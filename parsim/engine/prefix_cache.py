"""The KV cache with prefix caching: freed blocks stay findable until they are evicted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any

from parsim.engine.kv_cache import KVCache
from parsim.engine.request import EngineRequest

_NOTHING: list[Any] = []
"""What a lookup found when there was nothing to look for; never appended to."""


class SharedBlock:
    """A block whose content several requests may have in common.

    Attributes:
        key: its content and all before it.
        users: requests that hold it.
    """

    __slots__ = ("key", "users")

    def __init__(self, key: int) -> None:
        self.key = key
        self.users = 1


class Extent:
    """Freed full blocks of one request that it alone could find again.

    Attributes:
        owner: that request; None once it cannot come back.
        runs: ascending, disjoint (first, end) ranges of block numbers; evicted from the back. Not kept up to date
            without an owner, when only their number matters.
        blocks: their number.
        age: the owner's admission in which the content was computed; among copies the oldest is found.
    """

    __slots__ = ("age", "blocks", "owner", "runs")

    def __init__(self, owner: EngineRequest | None, first: int, end: int, age: int) -> None:
        self.owner = owner
        self.runs = [(first, end)]
        self.blocks = end - first
        self.age = age


class PrefixCache(KVCache):
    """Rule 6, vLLM's block pool: a free queue of blocks without content, then full ones, oldest freed first.

    A request frees its blocks back to front, so the tail of a sequence is evicted first. Blocks without content
    are reused first. Only blocks covered by a trace's prefix hashes can be shared; they are kept one by one.
    All others can be found only by the request that computed them, after a preemption; they are kept as extents.

    Copies of the same content arise when the last block of a fully cached sequence is recomputed, or when two
    requests compute the same block at once; a lookup finds the oldest copy.
    """

    def __init__(self, usable_blocks: int, block_size: int) -> None:
        super().__init__(usable_blocks, block_size)
        self._blank = usable_blocks
        self._queue: OrderedDict[Extent | SharedBlock, None] = OrderedDict()
        self._copies: dict[int, list[SharedBlock]] = {}
        self._found: list[SharedBlock] = []
        self._plan: list[tuple[Extent, int, int]] = []

    def lookup(self, request: EngineRequest, tokens: int) -> int:
        """See `KVCache.lookup`; blocks found are remembered for `acquire`."""
        prefix = request.prefix
        self._found = found = _NOTHING
        self._plan = _NOTHING
        self.idle_hits = hits = idle = 0
        if not prefix and not request.extents:
            return 0
        self._found = found = []
        self._plan = []
        limit = (tokens - 1) // self.block_size
        if prefix:
            copies = self._copies
            for key in prefix[:limit]:
                block = copies.get(key)
                if block is None:
                    break
                found.append(block[0])
                idle += not block[0].users
            hits = len(found)
            if hits < len(prefix):
                self.idle_hits = idle
                return hits
        if request.extents:
            private = self._lookup_private(request, hits, limit)
            hits += private
            idle += private
        self.idle_hits = idle
        return hits

    def acquire(self, request: EngineRequest, hits: int) -> None:
        """See `KVCache.acquire`."""
        request.admissions += 1
        request.kept = _NOTHING
        request.shared_full = 0
        request.shared = [] if request.prefix else _NOTHING
        if not hits:
            return
        request.kept = []
        queue = self._queue
        self.free -= self.idle_hits
        for block in self._found:
            if not block.users:
                del queue[block]
            block.users += 1
        request.shared = self._found
        request.shared_full = len(self._found)
        for extent, first, end in self._plan:
            self._carve(extent, first, end)
            request.kept.append((first, end, extent.age))

    def take(self, blocks: int) -> None:
        """See `KVCache.take`; evicts the content of full blocks, the longest freed first."""
        self.free -= blocks
        blank = self._blank
        if blocks <= blank:
            self._blank = blank - blocks
            return
        self._blank = 0
        blocks -= blank
        queue = self._queue
        while blocks:
            item = next(iter(queue))
            if isinstance(item, SharedBlock):
                del queue[item]
                self._forget(item)
                blocks -= 1
            elif item.blocks <= blocks:
                del queue[item]
                blocks -= item.blocks
                if item.owner is not None:
                    item.owner.extents.remove(item)
            elif item.owner is None:
                item.blocks -= blocks
                return
            else:
                self._evict_back(item, blocks)
                return

    def fill(self, request: EngineRequest, blocks: int, tokens: int) -> None:
        """See `KVCache.fill`; full blocks can be found at once, also in the same step."""
        prefix = request.prefix
        if not prefix:
            return
        shared = request.shared
        if len(shared) < len(prefix):
            shared.extend(SharedBlock(key) for key in prefix[len(shared) : blocks])
        full = min(tokens // self.block_size, len(shared))
        if full > request.shared_full:
            for block in shared[request.shared_full : full]:
                self._copies.setdefault(block.key, []).append(block)
            request.shared_full = full

    def release(self, request: EngineRequest, tokens: int, full_tokens: int, for_good: bool) -> None:
        """See `KVCache.release`."""
        block_size = self.block_size
        held = -(-tokens // block_size)
        self.fill(request, held, full_tokens)
        shared = request.shared
        first_private = len(shared)
        full = max(full_tokens // block_size, first_private)
        blank = held - full
        freed = held - first_private
        queue = self._queue
        private = full - first_private
        if for_good:
            for extent in request.extents:
                extent.owner = None
            request.extents = _NOTHING
            if private:
                last = next(reversed(queue)) if queue else None
                if isinstance(last, Extent) and last.owner is None:
                    last.blocks += private
                else:
                    queue[Extent(None, 0, private, 0)] = None
        elif private:
            self._queue_private(request, first_private, full)
        if shared:
            for place in range(first_private - 1, -1, -1):
                block = shared[place]
                block.users -= 1
                if not block.users:
                    freed += 1
                    if place < request.shared_full:
                        queue[block] = None
                    else:
                        blank += 1
            request.shared = []
        self._blank += blank
        self.free += freed

    def check(self, running: Collection[EngineRequest]) -> None:
        """Integrity: the free queue holds what `free` says; all blocks are free when nothing runs."""
        super().check(running)
        queued = self._blank + sum(
            1 if isinstance(item, SharedBlock) else item.blocks for item in self._queue
        )
        if queued != self.free:
            raise AssertionError(f"free queue holds {queued} KV blocks, {self.free} are counted free")

    def _queue_private(self, request: EngineRequest, first: int, end: int) -> None:
        """Queue a preempted request's full private blocks, back to front."""
        kept = request.kept
        computed_from = kept[-1][1] if kept else first
        pieces = [*kept, (computed_from, end, request.admissions)] if end > computed_from else kept
        if not request.extents:
            pieces = [(first, end, request.admissions)]
        added = []
        for low, high, age in reversed(pieces):
            extent = Extent(request, low, high, age)
            self._queue[extent] = None
            added.append(extent)
        request.extents = request.extents + added

    def _lookup_private(self, request: EngineRequest, start: int, limit: int) -> int:
        """Plan which extents to take the request's blocks `start`, `start` + 1, ... from, up to `limit`."""
        place = start
        extents = request.extents
        while place < limit:
            best: Extent | None = None
            best_end = 0
            for extent in extents:
                if best is None or extent.age < best.age:
                    for low, high in extent.runs:
                        if low <= place < high:
                            best, best_end = extent, high
            if best is None:
                break
            end = min(best_end, limit)
            for extent in extents:
                if extent.age < best.age:
                    for low, _ in extent.runs:
                        if place < low < end:
                            end = low
            self._plan.append((best, place, end))
            place = end
        return place - start

    def _carve(self, extent: Extent, first: int, end: int) -> None:
        """Take blocks `first` to `end` out of a queued extent."""
        runs = []
        for low, high in extent.runs:
            if low < min(first, high):
                runs.append((low, min(first, high)))
            if max(end, low) < high:
                runs.append((max(end, low), high))
        extent.runs = runs
        extent.blocks -= end - first
        if not extent.blocks:
            del self._queue[extent]
            assert extent.owner is not None
            extent.owner.extents.remove(extent)

    def _evict_back(self, extent: Extent, blocks: int) -> None:
        """Evict the last `blocks` blocks of an extent that has more."""
        extent.blocks -= blocks
        while blocks:
            first, end = extent.runs.pop()
            if end - first > blocks:
                extent.runs.append((first, end - blocks))
                return
            blocks -= end - first

    def _forget(self, block: SharedBlock) -> None:
        copies = self._copies[block.key]
        if len(copies) == 1:
            del self._copies[block.key]
        else:
            copies.remove(block)

"""The paged KV cache: who fits."""

from __future__ import annotations

from collections.abc import Collection

from parsim.engine.request import EngineRequest


class KVCache:
    """Blocks of the KV cache without prefix caching: blocks are alike, so a count of free ones is enough.

    `PrefixCache` has the same methods. A request's blocks are given by what it has computed, so the caller says
    how many tokens a request holds when it releases them.

    Attributes:
        free: blocks that can be taken.
        idle_hits: blocks found by the last `lookup` that are counted as free now.
    """

    def __init__(self, usable_blocks: int, block_size: int) -> None:
        self.usable_blocks = usable_blocks
        self.block_size = block_size
        self.free = usable_blocks
        self.idle_hits = 0

    def lookup(self, request: EngineRequest, tokens: int) -> int:
        """Full blocks of the request's first `tokens` tokens that are cached, the last token excepted."""
        return 0

    def acquire(self, request: EngineRequest, hits: int) -> None:
        """Hold the blocks that the last `lookup` found, on admission."""

    def take(self, blocks: int) -> None:
        """Take `blocks` free blocks; the caller has checked that there are enough."""
        self.free -= blocks

    def fill(self, request: EngineRequest, blocks: int, tokens: int) -> None:
        """The request holds `blocks` blocks now, and its first `tokens` tokens get their content."""

    def release(self, request: EngineRequest, tokens: int, full_tokens: int, for_good: bool) -> None:
        """Free all blocks of a request that holds `tokens` tokens.

        `full_tokens`: tokens whose full blocks other admissions may find; `for_good`: it will not come back.
        """
        self.free += -(-tokens // self.block_size)

    def check(self, running: Collection[EngineRequest]) -> None:
        """Integrity when nothing runs: all blocks are free.

        Raises:
            AssertionError: a block was lost or freed twice.
        """
        if not running and self.free != self.usable_blocks:
            raise AssertionError(f"{self.usable_blocks - self.free} of {self.usable_blocks} KV blocks lost")

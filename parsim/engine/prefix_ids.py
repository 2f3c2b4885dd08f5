"""Numbers of the blocks that requests share, from the prefix hashes of a trace."""

from __future__ import annotations

from collections.abc import Sequence


class UnfitHashes(ValueError):
    """A trace's hashes do not cover blocks of the engine, nor parts of blocks."""


class PrefixIds:
    """Numbers shareable blocks so that equal numbers mean equal content from the start of the prompt.

    Args:
        block_size: tokens of an engine block.
        hash_block_size: tokens that one hash of the trace covers; one must divide the other.

    Raises:
        UnfitHashes: neither size divides the other.
    """

    def __init__(self, block_size: int, hash_block_size: int) -> None:
        if block_size % hash_block_size and hash_block_size % block_size:
            raise UnfitHashes(
                f"block_size {block_size} and the trace's hash_block_size {hash_block_size}: one must divide the other"
            )
        self._blocks_per_hash = max(1, hash_block_size // block_size)
        self._hashes_per_block = max(1, block_size // hash_block_size)
        self._numbers: dict[tuple[int, int], int] = {}

    def of(self, hashes: Sequence[int]) -> list[int]:
        """Block numbers of a prompt whose full hash blocks have these hashes."""
        numbers = self._numbers
        node = -1
        nodes = []
        for value in hashes:
            node = numbers.setdefault((node, value), len(numbers))
            nodes.append(node)
        if self._hashes_per_block > 1:
            step = self._hashes_per_block
            return nodes[step - 1 :: step]
        per_hash = self._blocks_per_hash
        return [node * per_hash + part for node in nodes for part in range(per_hash)]

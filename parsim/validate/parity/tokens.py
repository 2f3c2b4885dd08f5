"""Token ids for requests of which only lengths and prefix hashes are known.

Equal hashes give equal tokens, and every other token of a run is used once: two requests share exactly those
leading tokens that their hashes say they share, and a sampled token never equals another one.
"""

from __future__ import annotations

from collections.abc import Sequence

STOP_TOKEN = (1 << 62) - 1
"""The token that ends a response before its `max_tokens`; no other token is like it."""

_SPAN = 1 << 24
"""Token ids set aside for each request's private tokens: more than any request has."""


def prompt_token_ids(
    index: int, prompt_tokens: int, prefix_hashes: Sequence[int], hash_block_size: int | None
) -> list[int]:
    """The prompt of the request with this index: shared blocks first, then private tokens.

    Args:
        index: position of the request in its case, >= 0.
        prompt_tokens: length of the prompt.
        prefix_hashes: one hash for each leading full block of `hash_block_size` tokens; some may be of the response.
        hash_block_size: tokens a hash covers; only needed where there are hashes.
    """
    shared = _shared_ids(prefix_hashes, hash_block_size)[:prompt_tokens]
    private = index * _SPAN
    return shared + list(range(private + len(shared), private + prompt_tokens))


def response_token_ids(
    index: int,
    prompt_tokens: int,
    output_tokens: int,
    prefix_hashes: Sequence[int],
    hash_block_size: int | None,
) -> list[int]:
    """The tokens that the request samples: those that its hashes name after the prompt, then private ones."""
    shared = _shared_ids(prefix_hashes, hash_block_size)[prompt_tokens : prompt_tokens + output_tokens]
    private = index * _SPAN + prompt_tokens
    return shared + list(range(private + len(shared), private + output_tokens))


def _shared_ids(prefix_hashes: Sequence[int], hash_block_size: int | None) -> list[int]:
    shared: list[int] = []
    for prefix_hash in prefix_hashes if hash_block_size else ():
        assert hash_block_size is not None
        first = -1 - prefix_hash * hash_block_size  # negative ids are the shared ones
        shared.extend(range(first, first - hash_block_size, -1))
    return shared

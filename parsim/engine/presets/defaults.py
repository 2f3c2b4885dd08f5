"""What `vllm serve` 0.32 chooses by itself: batch limits by card, block size, share of the memory.

Read in vLLM 0.32's code: `EngineArgs.get_batch_defaults` (engine/arg_utils.py), `CacheConfig` (config/cache.py),
`AttentionBackend.get_preferred_block_size` and the order of backends (platforms/cuda.py).
"""

from __future__ import annotations

from parsim.engine.presets.cards import GIB, Card
from parsim.engine.presets.model import Model

VERSION = "0.32"

GPU_MEMORY_UTILIZATION = 0.92
"""Share of the card's memory; 0.9 until about vLLM 0.19."""

BLOCK_SIZE = 16


def batch_limits(card: Card) -> tuple[int, int]:
    """`max_num_seqs` and `max_num_batched_tokens` of the API server on this card.

    By memory: from 160 GiB, from 70 GiB (but no A100), and less.
    """
    if card.memory >= 160 * GIB:
        return 1024, 16384
    if card.memory >= 70 * GIB and card.generation != "ampere":
        return 1024, 8192
    return 256, 2048


def block_size(model: Model, card: Card) -> int:
    """Tokens of a KV cache block: 16, but FlashInfer's latent attention, first on data-centre Blackwell, takes 32."""
    return 32 if model.latent and card.generation == "blackwell" else BLOCK_SIZE

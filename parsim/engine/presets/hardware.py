"""Model shapes and GPU datasheets, as numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelShape:
    """A dense decoder-only transformer in bfloat16 (2 bytes a weight and a cached value).

    Attributes:
        parameters: all weights, embeddings included.
        layers, heads, kv_heads, head_dim: attention shape.
        max_model_len: tokens of context that the preset serves.
    """

    parameters: float
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_model_len: int = 32768

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights."""
        return 2.0 * self.parameters

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token keeps in the cache."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim


@dataclass(frozen=True)
class Gpu:
    """One card, from its maker's datasheet.

    Attributes:
        memory_bytes: what the driver reports.
        bandwidth: memory bandwidth in bytes/s.
        flops: dense bfloat16 tensor FLOP/s.
        max_num_seqs, max_num_batched_tokens: what `vllm serve` 0.32 picks on this card.
    """

    memory_bytes: float
    bandwidth: float
    flops: float
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048


MODELS: dict[str, ModelShape] = {
    "llama-3.2-1b": ModelShape(1.24e9, 16, 32, 8, 64),
    "llama-3.2-3b": ModelShape(3.21e9, 28, 24, 8, 128),
    "llama-3.1-8b": ModelShape(8.03e9, 32, 32, 8, 128),
    "llama-3.1-70b": ModelShape(70.6e9, 80, 64, 8, 128),
    "qwen2.5-7b": ModelShape(7.62e9, 28, 28, 4, 128),
    "qwen2.5-14b": ModelShape(14.8e9, 48, 40, 8, 128),
    "qwen2.5-32b": ModelShape(32.8e9, 64, 40, 8, 128),
    "mistral-7b": ModelShape(7.25e9, 32, 32, 8, 128),
    "deepseek-r1-distill-llama-8b": ModelShape(8.03e9, 32, 32, 8, 128),
}
"""Shapes from the models' published `config.json`."""

GIB = 2.0**30

GPUS: dict[str, Gpu] = {
    "l4": Gpu(22.0 * GIB, 300e9, 121e12),
    "a10": Gpu(22.5 * GIB, 600e9, 125e12),
    "rtx-4090": Gpu(25_250_627_584, 1008e9, 165e12),
    "l40s": Gpu(44.4 * GIB, 864e9, 362e12),
    "a100-40g": Gpu(39.4 * GIB, 1555e9, 312e12),
    "a100-80g": Gpu(79.2 * GIB, 2039e9, 312e12),
    "rtx-pro-6000": Gpu(94.9 * GIB, 1792e9, 503e12, 1024, 8192),
    "h100": Gpu(79.2 * GIB, 3352e9, 989e12, 1024, 8192),
    "h200": Gpu(139.8 * GIB, 4800e9, 989e12, 1024, 8192),
}
"""Datasheets of NVIDIA (H100 and H200: SXM). Memory of the RTX 4090 as reported by a card, the others rounded."""

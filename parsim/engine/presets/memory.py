"""How a card's memory is divided: weights, what a step needs, and KV cache blocks by vLLM's formula.

Formulas: vLLM 0.32, `v1/core/kv_cache_utils.py` (groups of layers that share block numbers, bytes of a block) and
`v1/worker/gpu_worker.py` (what is left for the cache). What vLLM measures by a trial step and a trial capture of
CUDA graphs is estimated here: `reserved_bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from parsim.engine.presets.cards import Card
from parsim.engine.presets.model import Model
from parsim.engine.presets.precision import Precision

CONTEXT_BYTES = 0.64e9
"""The CUDA context and what is held beside weights and activations.

A vLLM 0.19 recording on an RTX 4090 with Llama-3.1-8B, a budget of 2,048 tokens and 256 sequences (LLMServingSim's
repository) resolved 2,588 blocks at 90%: 0.9 * 25.25 GB - 16.06 GB of weights - 5.43 GB of KV cache leaves 1.24 GB, of
which `reserved_bytes` counts 0.60 GB as activations and logits."""

GRAPH_BYTES = 0.6e9
"""CUDA graphs, which vLLM counts since 0.21: 0.36 GiB for 16 sizes (gpustack/runner#251), 0.65 GiB for all sizes of a
4B model (vllm#21489). Mixtures of experts have been seen to be charged many GiB (vllm#45178, #53013)."""

TYPICAL_CONTEXT = 2048
"""Tokens of a request at which blocks of sliding layers are counted."""


@dataclass(frozen=True)
class CacheLayout:
    """How vLLM lays the KV cache of one card out.

    Attributes:
        block_bytes: of one block, over the layers of a group.
        full_groups, sliding_groups: groups of layers; a request takes a block of each for every `block_size` tokens,
            of the sliding ones only for its window.
    """

    block_bytes: int
    full_groups: int
    sliding_groups: int


def weight_bytes(model: Model, precision: Precision, tp: int) -> float:
    """Bytes of weights on one of `tp` cards."""
    weights = model.weights
    split = (weights.attention + weights.dense) * precision.linear / 8
    whole = weights.latent * precision.linear / 8 + 2.0 * (weights.router + weights.norms)
    copied = 0.0
    if not model.latent and model.kv_heads < tp:
        keys = model.layers * model.hidden * 2 * model.kv_heads * model.key_dim
        copied = keys * (tp / model.kv_heads - 1) * precision.linear / 8
    table = 2.0 * (weights.embedding + weights.head)
    return whole + (split + copied + table) / tp + expert_bytes(model, precision, tp)


def expert_bytes(model: Model, precision: Precision, tp: int) -> float:
    """Bytes of all routed experts on one card.

    In mxfp4 vLLM pads them for its kernels: the width to a multiple of 128, the hidden size of 256
    (`mxfp4_round_up_hidden_size_and_intermediate_size`); so gpt-oss-120b takes 65.97 GiB, as measured (vllm#23278).
    """
    size = model.weights.experts * precision.experts / 8 / tp
    if precision.name == "mxfp4" and model.experts:
        width = model.expert_width / tp
        size *= _up(width, 128) / width * _up(model.hidden, 256) / model.hidden
    return size


def _up(value: float, multiple: int) -> float:
    return -(-value // multiple) * multiple


def cached_bytes(model: Model, precision: Precision, tp: int) -> float:
    """Bytes that one token keeps in one layer on one card: a share of the heads, but at least one head, and all of a
    latent."""
    shared = 1 if model.latent else min(tp, model.kv_heads)
    return model.cached_per_layer / shared * precision.kv / 8


def layout(model: Model, precision: Precision, tp: int, block_size: int) -> CacheLayout:
    """The groups of `_get_kv_cache_groups_uniform_page_size`: as many layers each as the rarer kind has, or, if the
    other kind has less than 1.5 times as many, as that one has."""
    full, sliding = model.full_layers, model.sliding_layers
    page = block_size * cached_bytes(model, precision, tp)
    if not full or not sliding:
        return CacheLayout(int(page * model.layers), 1, 0)
    few, many = min(full, sliding), max(full, sliding)
    size = many if many < 1.5 * few else few
    return CacheLayout(int(page * size), -(-full // size), -(-sliding // size))


def reserved_bytes(model: Model, tp: int, max_num_seqs: int, max_num_batched_tokens: int) -> float:
    """Bytes on one card beside weights and KV cache: activations of the largest step, logits, graphs, context.

    A token's activations, 2 bytes each: four of the hidden size, queries, keys and values, gate, up and their product;
    with experts those of every expert that it uses, and its output from each. Logits: of every sequence over the whole
    vocabulary, in bfloat16 and twice in float32.
    """
    heads = (model.heads * model.key_dim + 2 * model.kv_heads * model.key_dim) / tp
    experts = model.experts_per_token * (model.hidden + 3 * model.expert_width / tp) if model.experts else 0.0
    token = 2.0 * (4 * model.hidden + heads + max(3 * model.feed_forward / tp, experts))
    logits = 10.0 * max_num_seqs * model.vocabulary
    return CONTEXT_BYTES + GRAPH_BYTES + max_num_batched_tokens * token + logits


def cache_bytes(
    model: Model,
    precision: Precision,
    card: Card,
    tp: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    gpu_memory_utilization: float,
) -> float:
    """Bytes on one card that are left for the KV cache; below 0 if the weights do not fit."""
    spare = gpu_memory_utilization * card.memory - weight_bytes(model, precision, tp)
    return spare - reserved_bytes(model, tp, max_num_seqs, max_num_batched_tokens)


def vllm_blocks(laid: CacheLayout, cache: float) -> int:
    """vLLM's `num_gpu_blocks`: blocks of one group each that fit into `cache` bytes."""
    return max(int(cache // laid.block_bytes), 0)


def whole_blocks(model: Model, laid: CacheLayout, blocks: int, block_size: int) -> int:
    """The blocks as the simulated engine counts them: `block_size` tokens of a request, in all layers.

    The same as vLLM's without sliding layers. With them a request takes more than one of vLLM's blocks for
    `block_size` tokens, how many depends on its length: here it is `TYPICAL_CONTEXT` tokens long.
    """
    if not laid.sliding_groups:
        return blocks
    own = -(-TYPICAL_CONTEXT // block_size)
    window = min(-(-model.sliding_window // block_size) + 1, own)
    return blocks * own // (laid.full_groups * own + laid.sliding_groups * window)

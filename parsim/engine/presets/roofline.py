"""An engine's blocks and step time from a model's shape and a card's datasheet, with nothing measured."""

from __future__ import annotations

from parsim.engine.config import EngineConfig
from parsim.engine.presets.hardware import GPUS, MODELS, Gpu, ModelShape
from parsim.engine.step_time import StepTime

GPU_MEMORY_UTILIZATION = 0.92
"""vLLM 0.32's default share of the card's memory."""

RESERVED_BYTES = 1.25e9
"""Activations, CUDA graphs and the context beside weights and KV cache.

A vLLM 0.19 recording on an RTX 4090 with Llama-3.1-8B and a budget of 2048 tokens (LLMServingSim's repository) resolved
2,588 blocks at 90%: 0.9 * 25.25 GB - 16.06 GB of weights - 5.43 GB of KV cache leaves 1.24 GB."""

BANDWIDTH_EFFICIENCY = 0.9
"""Share of the datasheet's bandwidth that weight and KV reads reach: assumed."""

COMPUTE_EFFICIENCY = 0.6
"""Share of the datasheet's FLOP/s that prefill reaches: assumed."""

STEP_OVERHEAD_S = 0.5e-3
"""Launches and scheduling of a step that do not overlap with the GPU: assumed."""

SEQUENCE_OVERHEAD_S = 10e-6
"""Sampling and bookkeeping of one decoding sequence: assumed."""


def step_time(model: ModelShape, gpu: Gpu, provenance: str) -> StepTime:
    """Roofline: weights are read once a step, FLOPs add up, cached tokens are read by decoding sequences.

    FLOPs: 2 per weight and token; 4 * layers * heads * head_dim per (query, key) pair (Kaplan et al. 2020).
    """
    bandwidth = gpu.bandwidth * BANDWIDTH_EFFICIENCY
    flops = gpu.flops * COMPUTE_EFFICIENCY
    return StepTime(
        base_s=model.weight_bytes / bandwidth + STEP_OVERHEAD_S,
        prefill_token_s=2.0 * model.parameters / flops,
        decode_seq_s=2.0 * model.parameters / flops + SEQUENCE_OVERHEAD_S,
        kv_token_s=model.kv_bytes_per_token / bandwidth,
        attention_pair_s=4.0 * model.layers * model.heads * model.head_dim / flops,
        source="roofline",
        provenance=provenance,
    )


def num_gpu_blocks(model: ModelShape, gpu: Gpu, block_size: int) -> int:
    """KV cache blocks that fit beside the weights; below 2 if the model does not fit."""
    spare = GPU_MEMORY_UTILIZATION * gpu.memory_bytes - model.weight_bytes - RESERVED_BYTES
    return int(spare // (model.kv_bytes_per_token * block_size))


def preset(model_name: str, gpu_name: str, block_size: int = 16) -> EngineConfig | None:
    """The engine of one model on one card; None if the weights leave no room for a context of 2,048 tokens."""
    model, gpu = MODELS[model_name], GPUS[gpu_name]
    blocks = num_gpu_blocks(model, gpu, block_size)
    if blocks * block_size < 2048:
        return None
    provenance = (
        f"roofline from the shape of {model_name} (bfloat16) and the datasheet of {gpu_name}: "
        f"{BANDWIDTH_EFFICIENCY:.0%} of bandwidth, {COMPUTE_EFFICIENCY:.0%} of FLOP/s, "
        f"{STEP_OVERHEAD_S * 1e3:g} ms a step and {SEQUENCE_OVERHEAD_S * 1e6:g} us a sequence assumed; not measured"
    )
    return EngineConfig(
        name=f"{model_name}-{gpu_name}",
        provenance=f"{provenance}; blocks from {GPU_MEMORY_UTILIZATION:.0%} of memory less weights and 1.25 GB",
        max_num_seqs=gpu.max_num_seqs,
        max_num_batched_tokens=gpu.max_num_batched_tokens,
        block_size=block_size,
        num_gpu_blocks=blocks,
        max_model_len=min(model.max_model_len, (blocks - 1) * block_size),
        step_time=step_time(model, gpu, provenance),
    )

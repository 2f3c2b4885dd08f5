"""An engine's settings and step time from a model's shape and a card's datasheet, with nothing measured."""

from __future__ import annotations

import shlex

from parsim.engine.config import EngineConfig
from parsim.engine.presets import defaults, memory
from parsim.engine.presets.cards import CARDS, GIB
from parsim.engine.presets.costs import Costs, costs_of
from parsim.engine.presets.models import model_of
from parsim.engine.presets.precision import precision_of
from parsim.engine.presets.source import PresetSource
from parsim.engine.step_time import StepTime
from parsim.errors import UserError, nearest

BANDWIDTH_EFFICIENCY = 0.9
"""Share of the datasheet's bandwidth that weight and KV reads reach: assumed."""

COMPUTE_EFFICIENCY = 0.6
"""Share of the datasheet's FLOP/s that prefill reaches: assumed."""

LINK_EFFICIENCY = 0.7
"""Share of the link's bandwidth that an all-reduce reaches: assumed."""

EXCHANGE_S = {"NVLink": 8e-6, "xGMI": 12e-6, "PCIe": 25e-6}
"""Seconds of a small all-reduce by link: assumed."""

STEP_OVERHEAD_S = 0.5e-3
"""Launches and scheduling of a step that do not overlap with the GPU: assumed."""

SEQUENCE_OVERHEAD_S = 10e-6
"""Sampling and bookkeeping of one decoding sequence: assumed."""

TYPICAL_BATCH = 32
"""Tokens of a step at which the experts that it reads are counted."""

LEAST_TOKENS = 2048
"""A model fits on its cards if the KV cache holds a context of so many tokens."""

TIGHT_BYTES = 6e9
"""A KV cache below this is so small beside what is only estimated that its size is a guess."""


def step_time(costs: Costs, link: str, provenance: str) -> StepTime:
    """Roofline: weights are read once a step, FLOPs add up, cached tokens are read by decoding sequences."""
    read = costs.weights_s + costs.experts_s * costs.touched(TYPICAL_BATCH)
    exchange = costs.exchange_token_s / LINK_EFFICIENCY
    token = costs.token_s / COMPUTE_EFFICIENCY + exchange
    return StepTime(
        base_s=read / BANDWIDTH_EFFICIENCY + STEP_OVERHEAD_S + costs.exchanges * EXCHANGE_S[link],
        prefill_token_s=token + costs.window_token_s / COMPUTE_EFFICIENCY,
        decode_seq_s=token
        + costs.sampled_s / COMPUTE_EFFICIENCY
        + costs.window_s / BANDWIDTH_EFFICIENCY
        + SEQUENCE_OVERHEAD_S,
        kv_token_s=costs.kv_token_s / BANDWIDTH_EFFICIENCY,
        attention_pair_s=costs.pair_s / COMPUTE_EFFICIENCY,
        source="roofline",
        provenance=provenance,
    )


def preset(source: PresetSource) -> EngineConfig | None:
    """The engine of a model on its cards; None if the weights leave no room for a context of 2,048 tokens.

    Raises:
        UserError: no such model, card or dtype, or a size that does not divide over the cards.
    """
    model = model_of(source.model)
    if source.gpu not in CARDS:
        raise UserError(
            f"gpu {source.gpu!r}: no such card{nearest(source.gpu, CARDS)} (choose from {', '.join(CARDS)})"
        )
    card, tp = CARDS[source.gpu], source.tp
    if model.heads % tp:
        raise UserError(
            f"tp {tp}: the {model.heads} attention heads of {model.name} must divide evenly over the cards"
        )
    precision = precision_of(model, source.dtype, source.kv_cache_dtype)
    seqs, budget = defaults.batch_limits(card)
    block_size = defaults.block_size(model, card)
    share = source.gpu_memory_utilization
    cache = memory.cache_bytes(model, precision, card, tp, seqs, budget, share)
    laid = memory.layout(model, precision, tp, block_size)
    held = memory.vllm_blocks(laid, cache)
    blocks = memory.whole_blocks(model, laid, held, block_size)
    if blocks * block_size < LEAST_TOKENS:
        return None
    where = source.gpu if tp == 1 else f"{tp} x {source.gpu} over {card.link}"
    provenance = (
        f"roofline from the shape of {model.name} ({precision.name}) and the datasheet of {where}: "
        f"{BANDWIDTH_EFFICIENCY:.0%} of bandwidth, {COMPUTE_EFFICIENCY:.0%} of FLOP/s, "
        f"{STEP_OVERHEAD_S * 1e3:g} ms a step and {SEQUENCE_OVERHEAD_S * 1e6:g} us a sequence assumed; not measured"
    )
    weights = memory.weight_bytes(model, precision, tp)
    words = [
        provenance,
        f"blocks: {share:.0%} of {card.memory / GIB:.1f} GiB less {weights / GIB:.1f} GiB of weights and "
        f"{memory.reserved_bytes(model, tp, seqs, budget) / GIB:.1f} GiB (estimated) for a step leaves "
        f"{cache / GIB:.1f} GiB a card",
    ]
    if cache < TIGHT_BYTES:
        words.append(
            "so little that the estimate decides: take the number of blocks from vLLM's log (--set num_gpu_blocks=N)"
        )
    if laid.sliding_groups:
        words.append(
            f"vLLM would count {held:,} blocks, of which a request of {memory.TYPICAL_CONTEXT} tokens takes "
            f"{held / blocks:.2f} for each {block_size} tokens, windows of {model.sliding_window} included"
        )
    context = min(model.max_model_len, (blocks - 1) * block_size)
    serve = [model.hub, *(["--tensor-parallel-size", str(tp)] if tp > 1 else []), *precision.flag]
    if share != defaults.GPU_MEMORY_UTILIZATION:
        serve += ["--gpu-memory-utilization", f"{share:g}"]
    if context < model.max_model_len:
        words.append(
            f"max_model_len is cut from {model.max_model_len:,}, of which the cache holds no request"
        )
    return EngineConfig(
        name=source.name,
        provenance="; ".join(words),
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        block_size=block_size,
        num_gpu_blocks=blocks,
        max_model_len=context,
        serve=shlex.join(serve),
        step_time=step_time(costs_of(model, precision, card, tp), card.link, provenance),
    )

"""An engine's settings and step time from a model's shape and a card's datasheet, with nothing measured."""

from __future__ import annotations

import shlex

from parsim.engine.config import EngineConfig
from parsim.engine.presets import defaults, memory
from parsim.engine.presets.cards import CARDS, GIB
from parsim.engine.presets.costs import Costs, costs_of
from parsim.engine.presets.model import Model
from parsim.engine.presets.models import model_of
from parsim.engine.presets.precision import precision_of
from parsim.engine.presets.source import PresetSource
from parsim.engine.step_time import StepTime
from parsim.errors import UserError, nearest

REACHED = {
    "rtx-4090": (0.93, 1.0),
    "rtx-pro-6000": (0.80, 0.78),
    "a100-80g": (0.78, 0.72),
    "h100": (0.86, 0.73),
}
"""Shares of the datasheet's bandwidth and FLOP/s that dense projections of 7B to 72B models reach in public profiles:
LLMServingSim's of vLLM 0.19 kernels (RTX 4090, RTX PRO 6000) and vidur's (A100, H100); figures in docs/presets.md."""

ALIKE = {"a100-40g": "a100-80g", "rtx-5090": "rtx-pro-6000"}
"""Cards without a profile that are built as one that has it; the others by generation."""

REACHED_BY = {
    "ampere": (0.80, 0.72),
    "ada": (0.88, 0.80),
    "hopper": (0.86, 0.73),
    "blackwell": (0.85, 0.70),
    "blackwell-rtx": (0.80, 0.78),
    "cdna3": (0.75, 0.55),
}
"""The same where no profile of the card was found: assumed from its kin (cdna3: assumed)."""

EXPERT_COMPUTE = 0.65
"""What of that share of FLOP/s a mixture of experts reaches: 0.45-0.53 of the datasheet's instead of 0.78 for
Qwen3-30B-A3B on an RTX PRO 6000 (LLMServingSim's profile)."""

ATTENTION_COMPUTE = 0.5
"""Share of the FLOP/s that prefill attention reaches: 0.62 (RTX 4090), 0.40 (RTX PRO 6000) at 2,048 tokens there."""

LAYER_S = 15e-6
"""Seconds of a layer that no size explains: norms, rotary embedding, cache writes (10 us there) and the fixed part of
attention (8-14 us), some of which overlaps in CUDA graphs."""

STEP_S = 0.3e-3
"""Scheduling and launches of a step that do not overlap with the GPU: assumed."""

SEQUENCE_S = 12e-6
"""Sampling, bookkeeping and output of one decoding sequence on the CPU: chosen with sight of the recordings."""

CACHE_READ = 0.85
"""What of the bandwidth that weights reach reading the KV cache does: sequences of unlike length leave parts of the
card idle. 0.86-0.97 for 64 to 256 alike sequences there; this was chosen with sight of the recordings."""

LINK_EFFICIENCY = 0.7
"""Share of the link's bandwidth that an all-reduce reaches: assumed."""

EXCHANGE_S = {"NVLink": 8e-6, "xGMI": 12e-6, "PCIe": 25e-6}
"""Seconds of a small all-reduce by link: assumed."""

LEAST_TOKENS = 2048
"""A model fits on its cards if the KV cache holds a context of so many tokens."""

TIGHT_BYTES = 6e9
"""A KV cache below this is so small beside what is only estimated that its size is a guess."""


def reached(gpu: str) -> tuple[float, float]:
    """Shares of bandwidth and FLOP/s of this card."""
    return REACHED.get(ALIKE.get(gpu, gpu), REACHED_BY[CARDS[gpu].generation])


def step_time(model: Model, costs: Costs, gpu: str, provenance: str) -> StepTime:
    """Reading of weights and arithmetic overlap; the rest adds up."""
    bandwidth, flops = reached(gpu)
    exchange = costs.exchange_token_s / LINK_EFFICIENCY
    token = costs.passed_s / bandwidth + exchange
    return StepTime(
        base_s=STEP_S + model.layers * LAYER_S + costs.exchanges * EXCHANGE_S[CARDS[gpu].link],
        weights_s=costs.weights_s / bandwidth,
        experts_s=costs.experts_s / bandwidth,
        expert_share=costs.expert_share,
        token_s=costs.token_s / flops / (EXPERT_COMPUTE if model.experts else 1.0),
        prefill_token_s=token + costs.window_token_s / ATTENTION_COMPUTE,
        decode_seq_s=token + (costs.drawn_s + costs.window_s) / bandwidth + SEQUENCE_S,
        kv_token_s=costs.kv_token_s / bandwidth / CACHE_READ,
        attention_pair_s=costs.pair_s / ATTENTION_COMPUTE,
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
    bandwidth, flops = reached(source.gpu)
    measured = ALIKE.get(source.gpu, source.gpu) in REACHED
    provenance = (
        f"roofline from the shape of {model.name} ({precision.name}) and the datasheet of {where}: {bandwidth:.0%} of "
        f"bandwidth, {flops:.0%} of FLOP/s ({'as in public profiles' if measured else 'assumed'}), reading of weights "
        f"and arithmetic overlap; {STEP_S * 1e3:g} ms a step and {LAYER_S * 1e6:g} us a layer assumed; not measured"
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
        step_time=step_time(model, costs_of(model, precision, card, tp), source.gpu, provenance),
    )

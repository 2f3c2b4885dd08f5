"""Presets against vLLM's own code: batch limits by card, and blocks of the KV cache from the same memory."""

from __future__ import annotations

import pytest

pytest.importorskip("vllm")

from parsim.engine.presets import memory
from parsim.engine.presets.cards import CARDS
from parsim.engine.presets.defaults import batch_limits
from parsim.engine.presets.models import bundled, model_of
from parsim.engine.presets.precision import precision_of

pytestmark = pytest.mark.vllm

NAMES = {"a100-40g": "NVIDIA A100-SXM4-40GB", "a100-80g": "NVIDIA A100-SXM4-80GB"}


@pytest.mark.parametrize("gpu", CARDS)
def test_batch_limits_are_vllms(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.engine import arg_utils
    from vllm.usage.usage_lib import UsageContext

    class Platform:
        get_device_total_memory = staticmethod(lambda: int(CARDS[gpu].memory))
        get_device_name = staticmethod(lambda: NAMES.get(gpu, gpu))
        is_tpu = is_cpu = staticmethod(lambda: False)

    monkeypatch.setattr(arg_utils, "current_platform", Platform)
    tokens, seqs = arg_utils.EngineArgs.get_batch_defaults(1)
    server = UsageContext.OPENAI_API_SERVER
    assert batch_limits(CARDS[gpu]) == (seqs[server], tokens[server])


@pytest.mark.parametrize("name", bundled())
@pytest.mark.parametrize("tp", [1, 4, 8])
def test_blocks_are_vllms_for_the_same_memory(name: str, tp: int) -> None:
    """vLLM groups the layers' caches and divides the memory; the preset has the same number of blocks."""
    import torch
    from vllm.config import CacheConfig, VllmConfig
    from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups, get_kv_cache_groups
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec, MLAAttentionSpec, SlidingWindowSpec

    model = model_of(name)
    if model.heads % tp:
        pytest.skip("heads do not divide")
    config = VllmConfig(cache_config=CacheConfig(block_size=16))
    config.cache_config.kv_cache_layout = "NHD"  # FlashAttention's; any other gives the same numbers
    heads = max(1, model.kv_heads // tp)
    specs: dict[str, KVCacheSpec] = {}
    for layer in range(model.layers):
        common = {"block_size": 16, "num_kv_heads": heads, "dtype": torch.bfloat16}
        if model.latent:
            specs[f"l{layer}"] = MLAAttentionSpec(**common, head_size=model.cached_per_layer)
        elif layer < model.sliding_layers:
            specs[f"l{layer}"] = SlidingWindowSpec(
                **common, head_size=model.key_dim, sliding_window=model.sliding_window
            )
        else:
            specs[f"l{layer}"] = FullAttentionSpec(**common, head_size=model.key_dim)
    available = 20 * 2**30
    groups = get_kv_cache_groups(config, specs)
    laid = memory.layout(model, precision_of(model), tp, 16)
    assert len(groups) == laid.full_groups + laid.sliding_groups
    theirs = get_kv_cache_config_from_groups(config, groups, available).num_blocks
    assert memory.vllm_blocks(laid, available) == pytest.approx(theirs, abs=1)

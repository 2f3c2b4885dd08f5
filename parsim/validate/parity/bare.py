"""vLLM's scheduler and KV cache manager without an engine: from an `EngineConfig`, no model loaded."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from parsim.engine.config import EngineConfig
from parsim.scheduler.settings import SCHEDULER_CLASS, settings_of
from parsim.validate.live.architectures import model_folder
from parsim.validate.parity.case import Case, CaseRequest
from parsim.validate.parity.tokens import STOP_TOKEN, prompt_token_ids

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import Request


BlockHasher = Callable[[Any], list[Any]]


def quiet_vllm() -> None:
    """Settings under which vLLM neither talks nor looks for a hub; call before the first import of it."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    logging.getLogger("vllm").setLevel(logging.ERROR)


def bare_scheduler(case: Case) -> tuple[Scheduler, BlockHasher | None]:
    """The scheduler that vLLM would run for this case, and the hasher that its requests need.

    vLLM's own class serves what it can (`Case.vllms_own`); every other policy runs `ParsScheduler`.
    """
    own = case.vllms_own
    if own is not None:
        return assemble(case.engine, None, {}, own)
    return assemble(case.engine, SCHEDULER_CLASS, settings_of(case.policy))


def assemble(
    engine: EngineConfig,
    scheduler_cls: str | None,
    settings: Mapping[str, object],
    policy: Literal["fcfs", "priority"] = "fcfs",
) -> tuple[Scheduler, BlockHasher | None]:
    """A scheduler of this class (None: vLLM's own choice) with `settings` as parsim's `additional_config`; `policy` is
    vLLM's own, for a class that heeds it."""
    quiet_vllm()
    import torch
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    config = VllmConfig(
        model_config=ModelConfig(
            model=str(model_folder("tiny")),
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=engine.max_model_len,
            enforce_eager=True,
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=engine.max_num_seqs,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            max_model_len=engine.max_model_len,
            is_encoder_decoder=False,
            enable_chunked_prefill=engine.enable_chunked_prefill,
            long_prefill_token_threshold=engine.long_prefill_token_threshold,
            watermark=engine.watermark,
            scheduler_reserve_full_isl=engine.scheduler_reserve_full_isl,
            scheduler_cls=scheduler_cls,
            policy=policy,
        ),
        cache_config=CacheConfig(
            block_size=engine.block_size, enable_prefix_caching=engine.enable_prefix_caching
        ),
        device_config=DeviceConfig("cpu"),
        additional_config={"parsim": dict(settings)},
    )
    # The CPU platform turns async scheduling off; the scheduler itself knows no device.
    config.scheduler_config.async_scheduling = engine.async_scheduling
    config.cache_config.num_gpu_blocks = engine.num_gpu_blocks
    spec = FullAttentionSpec(block_size=engine.block_size, num_kv_heads=1, head_size=64, dtype=torch.bfloat16)
    kv_cache = KVCacheConfig(
        num_blocks=engine.num_gpu_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
    block_size, hash_block_size = resolve_kv_cache_block_sizes(kv_cache, config)
    scheduler = config.scheduler_config.get_scheduler_cls()(
        vllm_config=config,
        kv_cache_config=kv_cache,
        structured_output_manager=StructuredOutputManager(config),
        block_size=block_size,
        hash_block_size=hash_block_size,
    )
    return scheduler, _block_hasher(config, hash_block_size)


def bare_request(case: Case, index: int, hasher: BlockHasher | None) -> Request:
    """The case's request with this index as vLLM's scheduler takes it; its score travels in `extra_args`."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    request: CaseRequest = case.requests[index]
    return Request(
        request_id=request.request_id,
        prompt_token_ids=prompt_token_ids(
            index, request.prompt_tokens, request.prefix_hashes, case.hash_block_size
        ),
        sampling_params=SamplingParams(
            max_tokens=request.output_tokens + request.stops,
            ignore_eos=True,
            stop_token_ids=[STOP_TOKEN] if request.stops else None,
            extra_args=None if request.score is None or case.scoring else {"pars_score": request.score},
        ),
        pooling_params=None,
        arrival_time=request.arrival_s,
        priority=int(request.score or 0) if case.vllms_own == "priority" else 0,
        block_hasher=hasher,
    )


def _block_hasher(config: Any, hash_block_size: int) -> BlockHasher | None:
    if not config.cache_config.enable_prefix_caching:
        return None
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

    hash_function = get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
    init_none_hash(hash_function)
    return get_request_block_hasher(hash_block_size, hash_function)

"""One vLLM engine in this process: how it is started, and what it resolved its settings to."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parsim.errors import UserError
from parsim.validate.live.engine_settings import SETTABLE


def require_vllm() -> None:
    """Set the environment that an in-process engine needs, before vLLM is imported.

    Raises:
        UserError: vLLM is not installed.
    """
    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            "vLLM is not installed; with a GPU: pip install 'parsim[vllm]', on a CPU: as"
            " tests/install.sh of the source does"
        )
    for name, value in {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # oneDNN prepares kernels for every number of tokens in a step; by default it forgets them after some 200 others
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "65536",
    }.items():
        os.environ.setdefault(name, value)
    logging.getLogger("vllm").setLevel(logging.ERROR)


def on_cuda() -> bool:
    """Whether vLLM would run on a CUDA device here."""
    import torch

    return bool(torch.cuda.is_available())


def engine_arguments(settings: Mapping[str, Any], *, cuda: bool, dummy: bool) -> dict[str, Any]:
    """vLLM's `EngineArgs` for these settings on a CUDA device or a CPU."""
    same = [name for name in SETTABLE if name != "num_gpu_blocks"]
    arguments = {name: settings[name] for name in same if settings.get(name) is not None}
    if settings.get("num_gpu_blocks"):
        arguments["num_gpu_blocks_override"] = settings["num_gpu_blocks"]
    if not cuda:
        arguments |= {"enforce_eager": True, "kv_cache_memory_bytes": settings.get("kv_bytes", 1 << 30)}
    if dummy:
        arguments |= {"load_format": "dummy", "skip_tokenizer_init": True}
    return arguments


def start_engine(
    model: str | Path,
    settings: Mapping[str, Any],
    *,
    dummy: bool = False,
    seed: int = 0,
    scheduler_cls: str | None = None,
    additional_config: Mapping[str, Any] | None = None,
) -> Any:
    """Start vLLM in this process and return its `LLMEngine`.

    Args:
        model: folder or hub name; with `dummy` a folder with `config.json` alone.
        settings: vLLM's own names (`max_num_seqs`, `block_size`, ...); `num_gpu_blocks` becomes the override.
        dummy: random weights of the right shape and no tokenizer: nothing is downloaded.
        seed: the engine's sampling seed (per-request seeds fail on the CPU build).
        scheduler_cls: dotted name of a scheduler class, `additional_config` its settings.

    Raises:
        UserError: vLLM is missing or refuses the settings.
    """
    require_vllm()
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    if not on_cuda():
        import torch

        torch.set_num_threads(1)  # where torch was imported before OMP_NUM_THREADS was set
    arguments = engine_arguments(settings, cuda=on_cuda(), dummy=dummy)
    if scheduler_cls:
        arguments |= {"scheduler_cls": scheduler_cls, "additional_config": dict(additional_config or {})}
    try:
        return LLMEngine.from_engine_args(
            EngineArgs(model=str(model), dtype="bfloat16", seed=seed, disable_log_stats=True, **arguments)
        )
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"vLLM cannot start {model}: {reason[:400]}") from error


def scheduler_of(engine: Any) -> Any:
    """The scheduler object of an in-process engine (vLLM internals, pinned by a test)."""
    return engine.engine_core.engine_core.scheduler


def resolved_facts(engine: Any) -> dict[str, Any]:
    """What the engine really runs with, under `EngineConfig`'s names."""
    config = engine.vllm_config
    scheduler, cache = config.scheduler_config, config.cache_config
    return {
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_model_len": config.model_config.max_model_len,
        "block_size": cache.block_size,
        "num_gpu_blocks": cache.num_gpu_blocks_override or cache.num_gpu_blocks,
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
        "enable_chunked_prefill": bool(scheduler.enable_chunked_prefill),
        "long_prefill_token_threshold": scheduler.long_prefill_token_threshold,
        "scheduler_reserve_full_isl": scheduler.scheduler_reserve_full_isl,
        "watermark": getattr(scheduler, "watermark", 0.0),
        "async_scheduling": bool(scheduler.async_scheduling),
    }

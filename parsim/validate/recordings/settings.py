"""What a recording's `meta.json` says of the engine that served: each setting is used, or named in a note."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parsim.errors import UserError

FIELDS = {
    "scheduler_config": (
        "max_num_seqs",
        "max_num_batched_tokens",
        "enable_chunked_prefill",
        "long_prefill_token_threshold",
        "scheduler_reserve_full_isl",
        "async_scheduling",
        "watermark",
    ),
    "cache_config": ("block_size", "num_gpu_blocks", "enable_prefix_caching"),
    "model_config": ("max_model_len",),
}
"""Settings of `EngineConfig` by the part of a resolved configuration that states them."""

PLACED = ("tensor_parallel_size", "quantization", "kv_cache_dtype", "gpu_memory_utilization")
"""Settings that tell how the model was put on its cards (`PresetSource`)."""

WITHOUT_EFFECT = {
    "model",
    "dtype",
    "seed",
    "tokenizer",
    "tokenizer_mode",
    "trust_remote_code",
    "served_model_name",
    "load_format",
    "download_dir",
    "disable_log_stats",
    "disable_log_requests",
    "skip_tokenizer_init",
    "generation_config",
    "enable_expert_parallel",
    "enforce_eager",
    "distributed_executor_backend",
    "attention_backend",
}
"""Settings that decide nothing about the order of steps; what they cost is in the fitted step times."""

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "pipeline_parallel_size": (1,),
    "scheduling_policy": ("fcfs",),
    "policy": ("fcfs",),
    "cpu_offload_gb": (0,),
    "swap_space": (0, 4),
    "max_num_partial_prefills": (1,),
    "num_scheduler_steps": (1,),
    "enable_lora": (False,),
    "data_parallel_size_local": (1,),
    "data_parallel_backend": ("mp",),
}
"""Values of settings that are not modelled but change nothing."""

_FORMS = {
    "fp8": "fp8",
    "mxfp4": "mxfp4",
    "awq": "int4",
    "awq_marlin": "int4",
    "gptq": "int4",
    "gptq_marlin": "int4",
    "modelopt_fp4": "nvfp4",
}
"""`PresetSource.dtype` by vLLM's quantisation methods."""


@dataclass(frozen=True)
class Settings:
    """Settings of the recorded engine.

    Attributes:
        engine: under `EngineConfig`'s names, as far as they are said.
        put: under `PresetSource`'s names, likewise.
        replicas: engines behind vLLM's balancer (data parallelism).
        version: of vLLM, such as (0, 19); empty if not said.
        notes: what is not modelled, in words.
    """

    engine: dict[str, Any] = field(default_factory=dict)
    put: dict[str, Any] = field(default_factory=dict)
    replicas: int = 1
    version: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def read_recorded(facts: Mapping[str, Any], path: Path) -> Settings:
    """The settings in `facts`, the content of `path`. What was resolved counts more than what was asked for.

    Raises:
        UserError: a part is no object, or a number of engines is none.
    """
    given = part_of(facts, "engine_kwargs", path)
    resolved = part_of(facts, "resolved_config", path)
    known = {name for names in FIELDS.values() for name in names}
    engine = {name: value for name, value in given.items() if name in known and value is not None}
    if given.get("num_gpu_blocks_override") is not None:
        engine["num_gpu_blocks"] = given["num_gpu_blocks_override"]
    for part, names in FIELDS.items():
        found = part_of(resolved, part, path)
        engine |= {name: found[name] for name in names if found.get(name) is not None}
    cache = part_of(facts, "kv_cache", path)
    engine |= {name: cache[name] for name in FIELDS["cache_config"] if cache.get(name) is not None}
    parallel = {
        **given,
        **{k: v for k, v in part_of(resolved, "parallel_config", path).items() if v is not None},
    }
    replicas = _count(parallel, "data_parallel_size", path)
    put: dict[str, Any] = {"tp": _count(parallel, "tensor_parallel_size", path)}
    share = cache.get("gpu_memory_utilization") or given.get("gpu_memory_utilization")
    if isinstance(share, int | float):
        put["gpu_memory_utilization"] = share
    method = given.get("quantization")
    if method in _FORMS:
        put["dtype"] = _FORMS[method]
    if str(given.get("kv_cache_dtype", "auto")).startswith("fp8"):
        put["kv_cache_dtype"] = "fp8"
    notes = _unmodelled(given, known)
    if replicas > 1:
        notes.append(
            f"{replicas} data-parallel engines behind vLLM's balancer (snapshots every 100 ms); those of a model with "
            "experts wait for each other at every step, which the fitted step times hold on average"
        )
    version = str(facts.get("vllm_version") or "")
    if version:
        notes.append(f"served by vLLM {version}")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return Settings(engine, put, replicas, numbers, tuple(notes))


def part_of(facts: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    """An object within a recording's `meta.json`; empty where it is not there.

    Raises:
        UserError: it is something else.
    """
    part = facts.get(name)
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise UserError(
            f"{path}: field {name!r} must be an object (got {repr(part)[:80]}); mend or remove it"
        )
    return part


def _count(facts: Mapping[str, Any], name: str, path: Path) -> int:
    value = facts.get(name)
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1024:
        raise UserError(f"{path}: {name} must be a whole number from 1 to 1024 (got {value!r})")
    return value


def _unmodelled(given: Mapping[str, Any], known: set[str]) -> list[str]:
    """Settings that are neither used nor without effect."""
    used = {*known, *PLACED, *WITHOUT_EFFECT, "data_parallel_size", "num_gpu_blocks_override"}
    if given.get("quantization") not in _FORMS:
        used.discard("quantization")
    other = [
        f"{name} {value}"
        for name, value in given.items()
        if name not in used and value not in (None, False, "auto", *NEUTRAL.get(name, ()))
    ]
    return [f"not modelled, taken to change nothing but step times: {', '.join(other)}"] if other else []

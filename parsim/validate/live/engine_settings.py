"""The settings that a real engine is started with, checked before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from parsim.engine import EngineConfig, StepTime
from parsim.errors import UserError, first_problem, nearest
from parsim.settings_file import setting

SETTABLE = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "block_size",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "long_prefill_token_threshold",
    "watermark",
    "scheduler_reserve_full_isl",
    "num_gpu_blocks",
)
"""What can be given; the other fields of `EngineConfig` vLLM resolves itself."""


def engine_settings(given: Mapping[str, object], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`given` over `defaults`, under `EngineConfig`'s names. Values may be text.

    Raises:
        UserError: a name that cannot be set (the nearest is given), a value out of range, settings that vLLM refuses
            together, or blocks that do not hold one request of `max_model_len`.
    """
    for name in given:
        if name not in SETTABLE:
            raise UserError(
                f"{name}: no setting of a real engine{nearest(name, SETTABLE)} (choose from "
                f"{', '.join(SETTABLE)})"
            )
    settings = {**defaults, **{name: setting(value) for name, value in given.items()}}
    free = {"num_gpu_blocks": 10**9, "step_time": StepTime(base_s=1.0)}
    try:
        checked = EngineConfig.model_validate(free | settings)
    except ValidationError as error:
        raise UserError(first_problem(error)) from error
    room = checked.usable_blocks * checked.block_size
    if "max_model_len" in settings and room < checked.max_model_len:
        raise UserError(
            f"num_gpu_blocks={checked.num_gpu_blocks}: without vLLM's null block they hold {room} tokens, a "
            f"request of max_model_len {checked.max_model_len} needs "
            f"{-(-checked.max_model_len // checked.block_size) + 1} blocks; raise the one or lower the other"
        )
    return {name: getattr(checked, name) for name in settings}

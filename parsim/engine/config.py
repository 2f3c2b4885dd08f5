"""The settings of one engine, under vLLM's names."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from parsim.engine.step_time import StepTime

MOST = 10**15
"""The most that a setting counts: more is a mistake, and what is computed from it stays within int64."""

MOST_BLOCK_SIZE = 10**6
"""The most tokens of a block: the engine keeps a counter for each."""


class EngineConfig(BaseModel):
    """One model replica: scheduler and KV cache settings of vLLM V1 (0.32), and the time of a step.

    Attributes:
        name: what to call it.
        provenance: where the numbers come from, in words.
        max_num_seqs: requests that run at once.
        max_num_batched_tokens: tokens of one step.
        block_size: tokens of one KV cache block.
        num_gpu_blocks: KV cache blocks, one of which (the null block) is never usable.
        max_model_len: prompt + response tokens of one request.
        enable_prefix_caching: full blocks are reusable by content after they are freed.
        enable_chunked_prefill: a prompt may be split over steps.
        long_prefill_token_threshold: the most prompt tokens of one request in one step; 0 = no limit.
        watermark: share of the blocks kept free when a waiting request is admitted beside running ones.
        scheduler_reserve_full_isl: admit only if the whole current sequence fits, not just its first chunk.
        async_scheduling: a batch is formed while the previous one runs.
        serve: what follows `vllm serve` to run this engine: the model and how it is put on its cards.
        step_time: the time of a step.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    name: str = "custom"
    provenance: str = "given by hand"
    max_num_seqs: int = Field(256, ge=1, le=MOST)
    max_num_batched_tokens: int = Field(2048, ge=1, le=MOST)
    block_size: int = Field(16, ge=1, le=MOST_BLOCK_SIZE)
    num_gpu_blocks: int = Field(ge=2, le=MOST)
    max_model_len: int = Field(32768, ge=2, le=MOST)
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = Field(0, ge=0, le=MOST)
    watermark: float = Field(0.0, ge=0.0, lt=1.0, allow_inf_nan=False)
    scheduler_reserve_full_isl: bool = True
    async_scheduling: bool = True
    serve: str = "MODEL"
    step_time: StepTime

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError(f"expected a number or text, got {str(value).lower()}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> EngineConfig:
        """vLLM's own cross-checks (SchedulerConfig.verify_max_model_len), so that both refuse the same settings."""
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_num_seqs ({self.max_num_seqs})"
            )
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise ValueError(
                f"without chunked prefill max_num_batched_tokens ({self.max_num_batched_tokens}) must be at "
                f"least max_model_len ({self.max_model_len})"
            )
        if self.long_prefill_token_threshold > self.max_model_len:
            raise ValueError(
                f"long_prefill_token_threshold ({self.long_prefill_token_threshold}) must be at most "
                f"max_model_len ({self.max_model_len})"
            )
        return self

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can hold: all but the null block (rule 4)."""
        return self.num_gpu_blocks - 1

    @property
    def watermark_blocks(self) -> int:
        """Blocks that stay free when a request is admitted beside running ones."""
        return int(self.watermark * self.num_gpu_blocks)

"""What a preset is made of: a model, a card, and how the model is put on it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from parsim.engine.presets.defaults import GPU_MEMORY_UTILIZATION

MOST_CARDS = 64


class PresetSource(BaseModel):
    """A model on cards.

    Attributes:
        model: a bundled name, a folder with `config.json`, or a hub name that is in the local cache.
        gpu: the card's name.
        tp: cards that the model is split over (tensor parallelism, one server).
        dtype: of the weights: auto (as the checkpoint says), bfloat16, fp8, int8, int4, nvfp4, mxfp4.
        kv_cache_dtype: of the KV cache: auto (16 bits) or fp8.
        gpu_memory_utilization: vLLM's share of the card's memory.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    gpu: str
    tp: int = Field(1, ge=1, le=MOST_CARDS)
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float = Field(GPU_MEMORY_UTILIZATION, gt=0, le=1, allow_inf_nan=False)

    @property
    def name(self) -> str:
        """What the engine is called: MODEL-GPU, with the number of cards and the dtypes where they are not the
        default."""
        cards = self.gpu if self.tp == 1 else f"{self.tp}x{self.gpu}"
        own = [d for d in (self.dtype, f"kv-{self.kv_cache_dtype}") if d not in ("auto", "kv-auto")]
        return "-".join([self.model.rstrip("/").rpartition("/")[2], cards, *own])

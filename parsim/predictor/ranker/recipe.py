"""Every choice of a training run in one place; the card of a checkpoint repeats it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from parsim.predictor.ranker.pairs import DELTA

DEFAULT_ENCODER = "all-MiniLM-L6-v2"

Objective = Literal["pairwise", "pointwise", "listwise", "mixed", "ordinal"]
"""`mixed` is the mean of the pairwise and the pointwise loss, `ordinal` learns the distribution of the length."""

Tuning = Literal["full", "lora", "frozen"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
"""What to compute in; `score` takes the same as training."""

_LEARNING_RATE = {"full": 2e-5, "lora": 2e-3, "frozen": 1e-3}
_MINILM_LEARNING_RATE = 3e-4
"""The paper's 2e-5 is for bert-base; MiniLM, half as deep and half as wide, hardly moves at that rate."""


class Recipe(BaseModel):
    """How a predictor is trained. The defaults are the paper's, but for the encoder and how pairs are formed.

    The paper draws 10 partners a prompt offline and encodes both prompts of each pair (`pairs="offline"`).
    With `pairs="in-batch"` each prompt of a batch is encoded once and all usable pairs of the batch count:
    the same loss over more pairs at about a twentieth of the cost.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    objective: Objective = "pairwise"
    encoder: str = Field(default=DEFAULT_ENCODER, min_length=1, description="Hugging Face name or folder")
    pooling: Literal["cls", "pooled", "mean"] = Field(
        default="cls",
        description="[CLS] of the last layer, the encoder's pooled output, or the mean over tokens",
    )
    max_length: int = Field(default=128, ge=8, description="tokens of the prompt that the encoder sees")
    truncation: Literal["head", "head-tail"] = Field(
        default="head", description="which tokens of a longer prompt are kept"
    )
    tuning: Tuning = "full"
    lora_rank: int = Field(default=8, ge=1)
    lora_layers: int | None = Field(
        default=None, ge=1, description="adapt the last so many layers only; default all"
    )
    epochs: int = Field(default=3, ge=1)
    batch_size: int = Field(
        default=128, ge=2, description="prompts a batch, or pairs a batch with offline pairs"
    )
    learning_rate: float | None = Field(default=None, gt=0, description="peak; default by tuning and encoder")
    weight_decay: float = Field(default=0.01, ge=0)
    warmup: float = Field(default=0.1, ge=0, lt=1, description="share of the steps over which the rate rises")
    clip: float = Field(default=1.0, gt=0, description="largest norm of the gradient")
    margin: float = Field(default=1.0, gt=0)
    delta: float = Field(default=DELTA, ge=0, lt=1, description="smallest relative length gap of a pair")
    pairs: Literal["in-batch", "offline"] = "in-batch"
    partners: int = Field(default=10, ge=1, description="partners a prompt, offline pairs only")
    target: Literal["log", "raw"] = Field(default="log", description="what the pointwise loss regresses on")
    lexical: bool = Field(default=False, description="add a hashed bag-of-words ridge to the score")
    patience: int = Field(
        default=2, ge=1, description="stop after so many epochs without a better validation tau"
    )
    precision: Precision = Field(
        default="auto", description="auto: bf16 where the device computes in it natively, else fp32"
    )
    seed: int = Field(default=42, ge=0, lt=2**32)

    @model_validator(mode="after")
    def _only_pairs_are_drawn(self) -> Recipe:
        if self.pairs == "offline" and self.objective != "pairwise":
            raise ValueError(
                f"pairs=offline draws pairs before training, which objective={self.objective} has no use for"
            )
        return self

    @property
    def rate(self) -> float:
        """The peak learning rate."""
        if self.learning_rate is not None:
            return self.learning_rate
        if self.tuning == "full" and self.encoder.endswith(DEFAULT_ENCODER):
            return _MINILM_LEARNING_RATE
        return _LEARNING_RATE[self.tuning]

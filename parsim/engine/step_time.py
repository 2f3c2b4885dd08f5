"""How long a step takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_S = 1e6
"""The most seconds of one term: a longer one is a mistake of units, and sums stay finite."""


class StepTime(BaseModel):
    """Seconds of one engine step as a sum of five terms over the batch's totals.

    Attributes:
        base_s: every step: weights read once, kernel launches, the scheduler itself.
        prefill_token_s: a prompt (or recomputed) token.
        decode_seq_s: a sequence that decodes one token.
        kv_token_s: a cached token that the decoding sequences read.
        attention_pair_s: a (query, key) pair of the prefill chunks.
        source: `fitted` to a recording, `roofline` from datasheets, or `given` by hand.
        provenance: where the numbers come from, in words.
        fit_error: relative errors of the fit by metric name (0.01 = 1%), where there was one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_s: float = Field(ge=0, le=MOST_S, allow_inf_nan=False)
    prefill_token_s: float = Field(0.0, ge=0, le=MOST_S, allow_inf_nan=False)
    decode_seq_s: float = Field(0.0, ge=0, le=MOST_S, allow_inf_nan=False)
    kv_token_s: float = Field(0.0, ge=0, le=MOST_S, allow_inf_nan=False)
    attention_pair_s: float = Field(0.0, ge=0, le=MOST_S, allow_inf_nan=False)
    source: Literal["fitted", "roofline", "given"] = "given"
    provenance: str = "given by hand"
    fit_error: dict[str, float] | None = None

    def model_post_init(self, context: object) -> None:
        """Refuse a model in which no step takes time: the clock must advance."""
        if self.base_s <= 0 and min(self.prefill_token_s, self.decode_seq_s) <= 0:
            raise ValueError(
                "base_s, or both prefill_token_s and decode_seq_s, must be above 0: time must pass"
            )

    @property
    def least_s(self) -> float:
        """Seconds of the shortest step: one prompt token alone, or one decoding sequence that reads one token."""
        return self.base_s + min(
            self.prefill_token_s + self.attention_pair_s, self.decode_seq_s + self.kv_token_s
        )

    def seconds(self, prefill_tokens: int, decode_seqs: int, kv_tokens: int, attention_pairs: int) -> float:
        """Seconds of a step with these totals.

        `prefill_tokens`: tokens of requests that have not caught up since their (re)admission;
        `decode_seqs`: the other requests, one token each; `kv_tokens`: tokens they had computed before this step;
        `attention_pairs`: for each prefill chunk of n tokens at offset c, n*c + n*(n+1)/2.
        """
        return (
            self.base_s
            + self.prefill_token_s * prefill_tokens
            + self.decode_seq_s * decode_seqs
            + self.kv_token_s * kv_tokens
            + self.attention_pair_s * attention_pairs
        )

    def decode_only(self, decode_seqs: int) -> Callable[[int], float]:
        """Seconds of a step that only decodes so many sequences, by the tokens they have computed: those of `seconds`,
        to the last bit."""
        fixed_s = self.base_s + self.decode_seq_s * decode_seqs
        kv_token_s = self.kv_token_s
        return lambda kv_tokens: fixed_s + kv_token_s * kv_tokens

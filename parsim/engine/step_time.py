"""How long a step takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_S = 1e6
"""The most seconds of one term: a longer one is a mistake of units, and sums stay finite."""


class StepTime(BaseModel):
    """Seconds of one engine step from the batch's totals: a sum, one term of which may be an overlap.

    Reading the weights and computing with them overlap on a GPU; the step takes about as long as the longer of the two,
    and where they are alike a little more: sqrt(read^2 + (token_s * tokens)^2), with read = weights_s + experts_s *
    (1 - (1 - expert_share)^tokens), the share of the experts that so many tokens touch if each chooses at random.
    A fit that cannot tell them apart leaves both at 0, and base_s and the terms of a token hold them.

    Attributes:
        base_s: every step: kernel launches, the scheduler itself; and the weights read once, where nothing overlaps.
        prefill_token_s: a prompt (or recomputed) token.
        decode_seq_s: a sequence that decodes one token.
        kv_token_s: a cached token that the decoding sequences read.
        attention_pair_s: a (query, key) pair of the prefill chunks.
        weights_s: reading the weights that every step needs, overlapped with arithmetic.
        token_s: arithmetic of a token, prompt or decoded, overlapped with the reading of weights.
        experts_s: reading all routed experts.
        expert_share: share of the experts that one token uses.
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
    weights_s: float = Field(0.0, ge=0, le=MOST_S, allow_inf_nan=False)
    token_s: float = Field(0.0, ge=0, le=MOST_S, allow_inf_nan=False)
    experts_s: float = Field(0.0, ge=0, le=MOST_S, allow_inf_nan=False)
    expert_share: float = Field(0.0, ge=0, le=1, allow_inf_nan=False)
    source: Literal["fitted", "roofline", "given"] = "given"
    provenance: str = "given by hand"
    fit_error: dict[str, float] | None = None

    def model_post_init(self, context: object) -> None:
        """Refuse a model in which no step takes time: the clock must advance."""
        always = self.base_s + self.weights_s + self.token_s
        if always <= 0 and min(self.prefill_token_s, self.decode_seq_s) <= 0:
            raise ValueError(
                "base_s, or both prefill_token_s and decode_seq_s, must be above 0: time must pass"
            )

    @property
    def least_s(self) -> float:
        """Seconds of the shortest step: one prompt token alone, or one decoding sequence that reads one token."""
        return min(self.seconds(1, 0, 0, 1), self.seconds(0, 1, 1, 0))

    def overlapped(self, tokens: int) -> float:
        """Seconds of reading weights and computing with them for so many tokens."""
        read_s = self.weights_s
        if self.experts_s:
            read_s = read_s + self.experts_s * (1.0 - (1.0 - self.expert_share) ** tokens)
        compute_s = self.token_s * tokens
        return (read_s * read_s + compute_s * compute_s) ** 0.5

    def additive(self, tokens: int) -> StepTime:
        """A step time without overlap that is never longer than this one, and touches it at `tokens` tokens.

        The tangent of the overlap there, which a convex function lies above; experts count as for one token.
        """
        read_s = self.weights_s + self.experts_s * self.expert_share
        compute_s = self.token_s * tokens
        both_s = (read_s * read_s + compute_s * compute_s) ** 0.5
        base_s, token_s = (
            (read_s * read_s / both_s, self.token_s * compute_s / both_s) if both_s else (0.0, 0.0)
        )
        return self.model_copy(
            update={
                "base_s": self.base_s + base_s,
                "prefill_token_s": self.prefill_token_s + token_s,
                "decode_seq_s": self.decode_seq_s + token_s,
                **dict.fromkeys(("weights_s", "token_s", "experts_s", "expert_share"), 0.0),
            }
        )

    def seconds(self, prefill_tokens: int, decode_seqs: int, kv_tokens: int, attention_pairs: int) -> float:
        """Seconds of a step with these totals.

        `prefill_tokens`: tokens of requests that have not caught up since their (re)admission;
        `decode_seqs`: the other requests, one token each; `kv_tokens`: tokens they had computed before this step;
        `attention_pairs`: for each prefill chunk of n tokens at offset c, n*c + n*(n+1)/2.
        """
        fixed_s = self.base_s
        if self.weights_s or self.token_s or self.experts_s:
            fixed_s = fixed_s + self.overlapped(prefill_tokens + decode_seqs)
        return (
            fixed_s
            + self.prefill_token_s * prefill_tokens
            + self.decode_seq_s * decode_seqs
            + self.kv_token_s * kv_tokens
            + self.attention_pair_s * attention_pairs
        )

    def decode_only(self, decode_seqs: int) -> Callable[[int], float]:
        """Seconds of a step that only decodes so many sequences, by the tokens they have computed: those of `seconds`,
        to the last bit."""
        fixed_s = self.base_s
        if self.weights_s or self.token_s or self.experts_s:
            fixed_s = fixed_s + self.overlapped(decode_seqs)
        fixed_s = fixed_s + self.decode_seq_s * decode_seqs
        kv_token_s = self.kv_token_s
        return lambda kv_tokens: fixed_s + kv_token_s * kv_tokens

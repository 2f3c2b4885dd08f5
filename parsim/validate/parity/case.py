"""A parity case: engine settings, a policy and requests, in a form that is printed, replayed and shrunk."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from parsim.engine.config import EngineConfig
from parsim.engine.scoring_cost import ScoringCost
from parsim.scheduler.policy import Policy


class CaseRequest(BaseModel):
    """One request of a case.

    `score` is what the policy ranks by (None: the request carries no score). `prefix_hashes` has one hash for
    each leading block of `Case.hash_block_size` tokens; as in the Mooncake traces a hash names the block together with
    all that precedes it. Those that go on after the prompt name blocks of the response. `stops`: the response ends by a
    stop token, not at `max_tokens`. `abort_s` is when the client goes away (None: it stays).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    request_id: str
    arrival_s: float = Field(ge=0)
    prompt_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    score: float | None = None
    prefix_hashes: list[int] = Field(default_factory=list)
    stops: bool = False
    abort_s: float | None = None


class Case(BaseModel):
    """Everything that decides a run: the same case always gives the same steps.

    With `scoring` no request carries its score: a scorer beside the scheduler finds it, at this cost of time.
    `adapter` runs `ParsScheduler` where vLLM's own class would do as well (`vllms_own`); for every other policy it is
    `ParsScheduler` that runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: EngineConfig
    policy: Policy
    requests: list[CaseRequest]
    hash_block_size: int | None = None
    adapter: bool = False
    scoring: ScoringCost | None = None

    @property
    def vllms_own(self) -> Literal["fcfs", "priority"] | None:
        """The policy of vLLM's own scheduler, without any code of this project, that is the same as the case's: `fcfs`
        with victim `last`, or `priority` for whole scores with victim `worst` and no guard. None: there is none."""
        policy = self.policy
        if self.adapter:
            return None
        if not policy.ranked and policy.victim == "last":
            return "fcfs"
        by_score = policy.order == "score" and policy.victim == "worst" and not policy.do_no_harm
        whole = all(r.score is not None and r.score.is_integer() for r in self.requests)
        guards = (policy.starvation_threshold_s, policy.starvation_s_per_token, policy.ageing_tokens_per_s)
        plain = guards == (None, None, None) and self.scoring is None and not policy.learns
        return "priority" if by_score and plain and whole else None

    @property
    def most_steps(self) -> int:
        """Steps after which a run is taken for one without end: twenty times the tokens there are, and a thousand."""
        return 1000 + 20 * sum(request.prompt_tokens + request.output_tokens for request in self.requests)

    def rejection(self, request: CaseRequest) -> str | None:
        """Why vLLM could never serve this request, or None.

        The last sampled token needs no slot, and one block of `num_gpu_blocks` is the null block.
        """
        engine = self.engine
        tokens = request.prompt_tokens + request.output_tokens
        if tokens > engine.max_model_len:
            return f"{tokens} tokens exceed max_model_len {engine.max_model_len}"
        blocks = -(-(tokens - 1) // engine.block_size)
        if blocks > engine.num_gpu_blocks - 1:
            return f"{blocks} blocks exceed the {engine.num_gpu_blocks - 1} that exist"
        return None

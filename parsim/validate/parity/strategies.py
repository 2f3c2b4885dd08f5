"""Random parity cases for Hypothesis: small engines, tight memory, ties of every kind.

Times are multiples of 1/64 s and step-time coefficients of 2**-20 s, so that sums of floats are exact: an
arrival that falls on the end of a step does so on both sides.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from parsim.defaults import DEFAULT_STARVATION_THRESHOLD_S
from parsim.engine.config import EngineConfig
from parsim.engine.scoring_cost import ScoringCost
from parsim.engine.step_time import StepTime
from parsim.scheduler.policy import Policy, parse_policy
from parsim.scheduler.victim import VictimRule
from parsim.validate.parity.case import Case, CaseRequest

TICK_S = 1 / 64
VICTIMS: tuple[VictimRule, ...] = ("last", "worst")


@dataclass(frozen=True, slots=True)
class Corner:
    """What a group of cases has in common: each is drawn as often as every other."""

    policy: str
    victim: VictimRule
    enable_prefix_caching: bool
    async_scheduling: bool


def corners(policies: tuple[str, ...]) -> list[Corner]:
    """All combinations of these policies with victim, prefix caching and async scheduling."""
    return [Corner(*choice) for choice in itertools.product(policies, VICTIMS, (False, True), (False, True))]


_COEFFICIENTS = (0.0, 2.0**-20, 2.0**-14, 2.0**-9)


def _mostly(small: st.SearchStrategy[int], usual: st.SearchStrategy[int]) -> st.SearchStrategy[int]:
    """`usual` nine times in ten; a failure shrinks to `small`."""
    return st.integers(0, 9).flatmap(lambda choice: usual if choice else small)


@st.composite
def cases(draw: st.DrawFn, corner: Corner) -> Case:
    """A case of this corner."""
    block_size = draw(st.sampled_from([1, 2, 4, 5, 8, 16]))
    hash_block_size = block_size * draw(st.sampled_from([1, 1, 2]))
    if block_size in (4, 8, 16) and draw(st.booleans()):
        hash_block_size = block_size // 2
    policy = draw(_policies(corner))
    near_blocks = st.builds(
        lambda blocks, offset: max(1, blocks * block_size + offset),
        st.integers(0, max(1, 48 // block_size)),
        st.integers(-1, 1),
    )
    prompts = st.one_of(st.integers(1, 12), near_blocks, st.integers(1, 60))
    outputs = _mostly(prompts, st.integers(8, 60))
    count = draw(_mostly(st.integers(1, 5), st.integers(6, 18)))
    ticks = 0
    scores: st.SearchStrategy[float | None] = st.integers(0, 5).map(float)
    if draw(st.booleans()):
        scores = st.one_of(scores, st.none())
    requests: list[CaseRequest] = []
    for number in range(count):
        ticks += draw(st.one_of(st.just(0), st.just(0), st.integers(0, 8), st.integers(0, 100)))
        requests.append(draw(_requests(number, ticks, prompts, outputs, scores, hash_block_size, policy)))
    engine = draw(_engines(corner, block_size, requests))
    return Case(
        engine=engine,
        policy=policy,
        requests=requests,
        hash_block_size=hash_block_size,
        adapter=draw(st.booleans()),
        scoring=draw(_scorings()) if policy.has_predictor and draw(st.booleans()) else None,
    )


@st.composite
def _scorings(draw: st.DrawFn) -> ScoringCost:
    return ScoringCost(
        base_s=draw(st.sampled_from([1, 4, 16, 64])) * TICK_S,
        prompt_s=draw(st.sampled_from([0.0, TICK_S])),
        token_s=draw(st.sampled_from(_COEFFICIENTS)),
        max_tokens=16,
        max_batch=draw(st.sampled_from([1, 2, 64])),
    )


@st.composite
def _policies(draw: st.DrawFn, corner: Corner) -> Policy:
    policy = parse_policy(corner.policy)
    threshold_s = draw(st.sampled_from([None, 0.0, 16 * TICK_S, 1.0, 3.0, DEFAULT_STARVATION_THRESHOLD_S]))
    if not policy.ranked:
        return replace(policy, starvation_threshold_s=None, victim=corner.victim)
    return replace(
        policy,
        starvation_threshold_s=threshold_s,
        starvation_s_per_token=draw(st.sampled_from([None, None, 2.0**-6, 0.125])),
        ageing_tokens_per_s=draw(st.sampled_from([None, None, 0.5, 8.0]))
        if policy.order == "score"
        else None,
        victim=corner.victim,
    )


@st.composite
def _requests(
    draw: st.DrawFn,
    number: int,
    ticks: int,
    prompts: st.SearchStrategy[int],
    outputs: st.SearchStrategy[int],
    scores: st.SearchStrategy[float | None],
    hash_block_size: int,
    policy: Policy,
) -> CaseRequest:
    prompt, output = draw(prompts), draw(outputs)
    score: float | None
    if policy.score == "prompt_tokens":
        score = float(prompt)
    elif policy.score == "output_tokens":
        score = float(output)
    else:
        score = draw(scores)
    family = draw(st.integers(0, 2))
    shared = prompt // 2 if draw(st.booleans()) else prompt
    depth = min(draw(st.integers(0, 6)), shared // hash_block_size) if family else 0
    hashes = [family * 100 + place for place in range(depth)]
    if depth > 1 and draw(st.booleans()):
        hashes[-1] += 50  # a branch: the same start, another end
    abort_s = None
    if draw(st.integers(0, 7)) == 7:
        abort_s = (ticks + draw(st.integers(0, 300))) * TICK_S
    return CaseRequest(
        request_id=f"r{number}",
        arrival_s=ticks * TICK_S,
        prompt_tokens=prompt,
        output_tokens=output,
        score=score,
        prefix_hashes=hashes,
        stops=draw(st.booleans()),
        abort_s=abort_s,
    )


@st.composite
def _engines(draw: st.DrawFn, corner: Corner, block_size: int, requests: list[CaseRequest]) -> EngineConfig:
    tokens = [request.prompt_tokens + request.output_tokens for request in requests]
    blocks = [-(-(total - 1) // block_size) for total in tokens]
    most, demand = max(blocks), sum(blocks)
    tight = st.integers(most, most + max(1, most // 4))
    loose = st.one_of(st.integers(most, max(most, demand)), st.integers(1, most))
    usable = draw(loose if draw(st.integers(0, 5)) == 5 else tight)
    longest = sorted(tokens)[-1 - draw(st.sampled_from([0, 0, 0, 0, 0, len(tokens) // 4]))]
    max_model_len = max(2, longest) + draw(st.sampled_from([0, 7]))
    max_num_seqs = draw(_mostly(st.integers(1, 3), st.integers(3, 12)))
    chunked = draw(st.sampled_from([True, True, False]))
    least = max_num_seqs if chunked else max(max_num_seqs, max_model_len)
    budget = least + draw(st.one_of(st.integers(0, 12), st.integers(0, 100)))
    options: dict[str, Any] = {
        "enable_prefix_caching": corner.enable_prefix_caching,
        "async_scheduling": corner.async_scheduling,
        "long_prefill_token_threshold": min(draw(st.sampled_from([0, 0, 1, 3, 8])), max_model_len),
        "watermark": draw(st.sampled_from([0.0, 0.0, 0.05, 0.3])),
        "scheduler_reserve_full_isl": draw(st.booleans()),
    }
    step_time = StepTime(
        base_s=draw(st.sampled_from([1, 4, 16])) * TICK_S,
        prefill_token_s=draw(st.sampled_from(_COEFFICIENTS)),
        decode_seq_s=draw(st.sampled_from(_COEFFICIENTS)),
        kv_token_s=draw(st.sampled_from(_COEFFICIENTS[:3])),
        attention_pair_s=draw(st.sampled_from(_COEFFICIENTS[:2])),
    )
    return EngineConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        block_size=block_size,
        num_gpu_blocks=usable + 1,
        max_model_len=max_model_len,
        enable_chunked_prefill=chunked,
        step_time=step_time,
        **options,
    )

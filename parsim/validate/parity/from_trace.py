"""A parity case from a trace: its first requests under a policy, on a given engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsim.errors import UserError
from parsim.simulation import check_clock, policy_scores, score_problem
from parsim.traces import Trace
from parsim.validate.parity.case import Case, CaseRequest

if TYPE_CHECKING:
    from parsim.engine.config import EngineConfig
    from parsim.scheduler.policy import Policy

EMULATED_TAU = 0.6
"""Kendall tau-b of the scores that stand in where a trace lacks those of a policy; any order will do here."""


def case_from_trace(
    trace: Trace, engine: EngineConfig, policy: Policy, requests: int, load: float, seed: int
) -> tuple[Case, str | None]:
    """The first `requests` of a trace, and a note where their scores are emulated.

    Args:
        load: arrivals come this many times faster.
        seed: of emulated scores.

    Raises:
        UserError: the trace is empty, or the load leaves its arrivals without a clock.
    """
    frame = trace.frame.head(requests)
    if not frame.height:
        raise UserError(f"trace {trace.name}: holds no requests; nothing to compare")
    check_clock(trace, engine, load)
    note = None
    scores: list[float | None] = [None] * frame.height
    ranking = policy
    if score_problem(trace, policy):
        ranking = policy.emulated(EMULATED_TAU)
    found, reached = policy_scores(Trace(frame, trace.metadata), engine, ranking, seed)
    if found is not None:
        scores = found.to_list()
    if reached is not None:
        note = f"scores of {policy.name} are emulated, tau-b {reached:.2f}"
    hashes = frame["prefix_hashes"].to_list() if trace.has_prefix_hashes else [None] * frame.height
    case = Case(
        engine=engine,
        policy=policy,
        hash_block_size=trace.hash_block_size,
        requests=[
            CaseRequest(
                request_id=request_id,
                arrival_s=arrival_s / load,
                prompt_tokens=prompt_tokens,
                output_tokens=output_tokens,
                score=score,
                prefix_hashes=prefix_hashes or [],
            )
            for request_id, arrival_s, prompt_tokens, output_tokens, score, prefix_hashes in zip(
                *(frame[name] for name in ("request_id", "arrival_s", "prompt_tokens", "output_tokens")),
                scores,
                hashes,
                strict=True,
            )
        ],
    )
    return case, note


def tight_blocks(trace: Trace, block_size: int, requests: int) -> int:
    """KV blocks (the null block included) that hold the three longest of the requests at once, and no more."""
    frame = trace.frame.head(requests)
    longest = (frame["prompt_tokens"] + frame["output_tokens"]).top_k(3).sum()
    return int(longest) // block_size + 2

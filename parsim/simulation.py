"""One run: a trace on an engine under a policy."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from parsim.errors import UserError
from parsim.scheduler import own_order
from parsim.scheduler.policy import CLAIRVOYANT_COLUMNS

if TYPE_CHECKING:
    import polars as pl

    from parsim.engine.config import EngineConfig
    from parsim.engine.request import EngineRequest
    from parsim.engine.scorer import VirtualScorer
    from parsim.engine.scoring_cost import ScoringCost
    from parsim.scheduler.own_order import KeyFunction
    from parsim.scheduler.policy import Policy
    from parsim.traces import Trace

Steps = Literal["none", "log", "detail"]

CLOCK_ERROR = 1e-3
"""The most that rounding of the clock may take from or add to the shortest step, as a share of it."""


@dataclass(frozen=True)
class Run:
    """What came out.

    Attributes:
        requests: one row a request in trace order: request_id, arrival_s, first_scheduled_s, first_token_s, finish_s
            (null if rejected), prompt_tokens, output_tokens, cached_tokens, preemptions, recomputed_tokens, score
            (null if the policy has none), promoted, rejected (the reason, or null), scored_s (when the scheduler
            learned the score; null where scoring is not charged), and client_id if the trace has it.
        gaps: gap_s and tokens, how often that time lay between two tokens of a response (see `TokenGaps`).
        steps: one row a step (see `StepLog`), if asked for.
        metadata: policy, engine, load, seed, emulated and reached tau, steps, mean_kv_usage, cpu_s of the run;
            where scoring is charged: mean_scoring_delay_s (arrival to score, of those that got one),
            scoring_s_per_request, scorer_core_share (of the time until the last finish), and as shares of the requests
            admitted_unscored and never_scored (none came before the run ended).
    """

    requests: pl.DataFrame
    gaps: pl.DataFrame
    steps: pl.DataFrame | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def simulate(
    trace: Trace,
    engine: EngineConfig,
    policy: Policy | str | KeyFunction,
    *,
    load: float = 1.0,
    seed: int = 0,
    emulate: Mapping[str, float] | None = None,
    scoring: ScoringCost | None = None,
    steps: Steps = "none",
) -> Run:
    """Replay a trace on an engine under a policy.

    Args:
        trace: requests in order of arrival.
        engine: settings and step time.
        policy: a policy, a text that names one (`parsim.scheduler.policy.parse_policy`; any `score.NAME` of the trace
            is a policy NAME), or a function that orders requests (`parsim.scheduler.own_order`).
        load: arrivals come this many times faster.
        seed: of emulated scores; the engine itself is deterministic.
        emulate: Kendall tau-b by policy name, for policies whose predictor is to be emulated.
        scoring: what a predictor's scores cost; requests of a policy that has a predictor are then without a score
            until it answers. None: scores are there on arrival.
        steps: record no steps, their totals, or also every request in them.

    Raises:
        UserError: the trace lacks the policy's scores, or the policy has none to emulate; the trace is empty, its
            hashes do not fit the block size, or its last arrival is so late that the clock loses steps to rounding.
    """
    import simpy

    from parsim.engine.engine import Engine
    from parsim.engine.scorer import VirtualScorer
    from parsim.engine.step_log import StepLog
    from parsim.scheduler.policy import as_policy

    policy = as_policy(policy, trace.score_names)
    if emulate and policy.name in emulate:
        try:
            policy = policy.emulated(emulate[policy.name])
        except ValueError as error:
            raise UserError(str(error)) from error
    if not len(trace):
        raise UserError(f"trace {trace.name}: holds no requests; nothing to simulate")
    check_clock(trace, engine, load)
    scores, reached_tau = policy_scores(trace, engine, policy, seed)
    log = None if steps == "none" else StepLog(detail=steps == "detail")
    scorer: VirtualScorer[EngineRequest] | None = None
    if scoring is not None and policy.has_predictor:
        scorer = VirtualScorer(scoring)
    with _collector_paused():
        requests = _requests(trace, engine, scores, load)
        if scorer is not None:
            for request in requests:
                request.predicted, request.score = request.score, None
        began = time.process_time()
        env = simpy.Environment()
        run = Engine(env, engine, policy, requests, scorer=scorer, observer=log)
        env.run()
        cpu_s = time.process_time() - began
        outcome = _outcome(trace, requests, scores)
    capacity = run.busy_s * engine.usable_blocks
    return Run(
        requests=outcome,
        gaps=run.gaps.frame(),
        steps=log.frame() if log else None,
        metadata={
            "trace": trace.name,
            "policy": policy.name,
            "policy_label": policy.label,
            "order": own_order.reference(policy.order),
            "victim": policy.victim,
            "starvation_threshold_s": policy.starvation_threshold_s,
            "emulated_tau": policy.emulated_tau,
            "reached_tau": reached_tau,
            "engine": engine.model_dump(mode="json"),
            "load": load,
            "seed": seed,
            "steps": run.step,
            "busy_s": run.busy_s,
            "mean_kv_usage": run.used_block_s / capacity if capacity else 0.0,
            "cpu_s": cpu_s,
            **(_scoring(outcome, scorer) if scorer is not None else {}),
        },
    )


def _scoring(outcome: pl.DataFrame, scorer: VirtualScorer[EngineRequest]) -> dict[str, float]:
    """What scoring cost and delayed."""
    import polars as pl

    scored = outcome.filter(pl.col("rejected").is_null())
    late = (pl.col("first_scheduled_s") < pl.col("scored_s").fill_null(math.inf)).mean()
    delay = (pl.col("scored_s") - pl.col("arrival_s")).mean()
    never = pl.col("scored_s").is_null().mean().alias("never")
    delay_s, late_share, never_share, end_s = scored.select(
        delay, late, never, pl.col("finish_s").max().alias("end")
    ).row(0)
    overhang_s = max(scorer.next_s - end_s, 0.0) if end_s and scorer.next_s != math.inf else 0.0
    return {
        "mean_scoring_delay_s": delay_s or 0.0,
        "admitted_unscored": late_share or 0.0,
        "never_scored": never_share or 0.0,
        "scoring_s_per_request": scorer.busy_s / max(scored.height, 1),
        "scorer_core_share": (scorer.busy_s - overhang_s) / end_s if end_s else 0.0,
    }


def check_clock(trace: Trace, engine: EngineConfig, load: float) -> None:
    """Refuse a load that is none, and arrivals so late that adding a step to the clock is lost in rounding.

    Raises:
        UserError: one of these.
    """
    if not load > 0 or load == float("inf"):
        raise UserError(f"load {load:g}: must be a finite number above 0")
    last_s = float(trace.frame["arrival_s"][-1]) / load
    least_s = engine.step_time.least_s
    if not math.ulp(last_s) <= CLOCK_ERROR * least_s:
        raise UserError(
            f"trace {trace.name}: at load {load:g} the last request arrives after {last_s:.3g} s, where the clock "
            f"cannot tell steps of {least_s:.3g} s apart; raise the load, or check the units of arrivals and step time"
        )


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Spare the cycle collector: a run keeps all it allocates, so scanning it again and again finds nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def score_problem(trace: Trace, policy: Policy) -> str | None:
    """Why the trace cannot be ordered by the policy, with the mend; None if it can."""
    column = policy.score
    known = column in trace.frame.columns or column in CLAIRVOYANT_COLUMNS
    if column is None or policy.emulated_tau is not None or known:
        return None
    name = column.removeprefix("score.")
    have = ", ".join(trace.score_names) or "none"
    return (
        f"policy {policy.name} needs the column {column}, which trace {trace.name} lacks (scores there: {have}); "
        f"make it with `parsim score {name} TRACE OUT` or stand in an emulated predictor with "
        f"`--emulate {policy.name}=TAU`"
    )


def policy_scores(
    trace: Trace, engine: EngineConfig, policy: Policy, seed: int
) -> tuple[pl.Series | None, float | None]:
    """What a policy ranks the requests by and, where that is emulated, the tau-b it reaches.

    Raises:
        UserError: the trace lacks the policy's scores.
    """
    import polars as pl

    from parsim.emulation import emulate_scores
    from parsim.engine.work import clairvoyant_score

    if policy.emulated_tau is not None:
        scores, tau = emulate_scores(trace.frame["output_tokens"].to_numpy(), policy.emulated_tau, seed)
        return pl.Series("score", scores), tau
    problem = score_problem(trace, policy)
    if problem:
        raise UserError(problem)
    if policy.score is None:
        return None, None
    if policy.score in CLAIRVOYANT_COLUMNS:
        return trace.frame.select(clairvoyant_score(policy.score, engine)).to_series(), None
    return trace.frame[policy.score].cast(pl.Float64), None


def _requests(
    trace: Trace, engine: EngineConfig, scores: pl.Series | None, load: float
) -> list[EngineRequest]:
    from parsim.engine.prefix_cache import PrefixIds
    from parsim.engine.request import EngineRequest

    frame = trace.frame
    columns: list[Any] = [
        range(frame.height),
        frame["request_id"].to_list(),
        (frame["arrival_s"] / load).to_list(),
        frame["prompt_tokens"].to_list(),
        frame["output_tokens"].to_list(),
        [None] * frame.height if scores is None else scores.to_list(),
    ]
    hash_block_size = trace.hash_block_size
    if engine.enable_prefix_caching and hash_block_size is not None:
        try:
            ids = PrefixIds(engine.block_size, hash_block_size)
        except ValueError as error:
            raise UserError(
                f"trace {trace.name}: {error}; change block_size or switch prefix caching off"
            ) from error
        columns.append([ids.of(hashes or []) for hashes in frame["prefix_hashes"].to_list()])
    return [EngineRequest(*row) for row in zip(*columns, strict=True)]


def _outcome(trace: Trace, requests: list[EngineRequest], scores: pl.Series | None) -> pl.DataFrame:
    import polars as pl

    times = ("first_scheduled_s", "first_token_s", "finish_s", "scored_s")
    counts = ("cached_tokens", "preemptions", "recomputed_tokens")
    progress = zip(*map(attrgetter("arrival_s", *times, *counts), requests), strict=True)
    columns = dict(zip(("arrival_s", *times, *counts), progress, strict=True))
    outcome = pl.DataFrame(
        {
            "request_id": trace.frame["request_id"],
            **{name: columns[name] for name in ("arrival_s", *times)},
            "prompt_tokens": trace.frame["prompt_tokens"],
            "output_tokens": trace.frame["output_tokens"],
            **{name: columns[name] for name in counts},
            "score": pl.Series(scores if scores is not None else [None] * len(requests), dtype=pl.Float64),
            "promoted": [request.promoted for request in requests],
            "rejected": [request.rejected or None for request in requests],
        },
        schema_overrides={"rejected": pl.String},
    ).with_columns(pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name) for name in times)
    if "client_id" in trace.frame.columns:
        outcome = outcome.with_columns(trace.frame["client_id"])
    return outcome

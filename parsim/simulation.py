"""One run: a trace on an engine under a policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from parsim.errors import UserError
from parsim.scheduler import own_order
from parsim.scheduler.policy import CLAIRVOYANT_COLUMNS

if TYPE_CHECKING:
    import polars as pl

    from parsim.engine.config import EngineConfig
    from parsim.engine.request import EngineRequest
    from parsim.engine.run import Outcome, Workload
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
            admitted_unscored and never_scored (none came before the run ended); where a judge watched the scores:
            trusted_times, distrusted_times, judged_tau (the last); where they were learned: scored, the share that got
            a score, and learned_tau, the tau-b of all those scores with the lengths.
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
    from parsim.engine.learning import LearningScorer
    from parsim.engine.prefix_ids import UnfitHashes
    from parsim.engine.run import run
    from parsim.engine.scorer import VirtualScorer
    from parsim.engine.step_log import StepLog
    from parsim.learner.judge import ScoreJudge
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
    charged = scoring if policy.has_predictor else None
    workload = _workload(trace, scores, load)
    learning = LearningScorer.on(trace.frame, seed) if policy.learns else None
    judge = ScoreJudge() if policy.do_no_harm else None
    try:
        outcome = run(workload, engine, policy, scoring=charged, observer=log, learning=learning, judge=judge)
    except UnfitHashes as error:
        raise UserError(
            f"trace {trace.name}: {error}; change block_size or switch prefix caching off"
        ) from error
    if learning is not None:
        scores = learning.scores(len(trace))
    requests = _requests(trace, workload, outcome, scores)
    ran = outcome.engine
    capacity = ran.busy_s * engine.usable_blocks
    return Run(
        requests=requests,
        gaps=ran.gaps.frame(),
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
            "steps": ran.step,
            "busy_s": ran.busy_s,
            "mean_kv_usage": ran.used_block_s / capacity if capacity else 0.0,
            "cpu_s": outcome.cpu_s,
            **(_scoring(requests, outcome.scorer) if isinstance(outcome.scorer, VirtualScorer) else {}),
            **(judge.facts() if judge is not None else {}),
            **(learning.facts(trace.frame["output_tokens"]) if learning is not None else {}),
        },
    )


def _scoring(requests: pl.DataFrame, scorer: VirtualScorer[EngineRequest]) -> dict[str, float]:
    """What scoring cost and delayed."""
    import polars as pl

    scored = requests.filter(pl.col("rejected").is_null())
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


def _workload(trace: Trace, scores: pl.Series | None, load: float) -> Workload:
    from parsim.engine.run import Workload

    frame = trace.frame
    return Workload(
        frame["request_id"],
        frame["arrival_s"] / load,
        frame["prompt_tokens"],
        frame["output_tokens"],
        scores,
        _hashes(trace),
        trace.hash_block_size,
    )


def _hashes(trace: Trace) -> pl.Series | None:
    """Hashes of each prompt and, where the session's next turn repeats prompt and response, of the response: that
    turn's own. It repeats them if its hashes begin with those of this prompt and its prompt is long enough for both."""
    import polars as pl

    size = trace.hash_block_size
    if size is None:
        return None
    frame, own = trace.frame, pl.col("prefix_hashes")
    if "session_id" not in frame.columns:
        return frame["prefix_hashes"]
    tokens = pl.col("prompt_tokens") + pl.col("output_tokens")
    later = own.shift(-1).over("session_id")
    repeats = (later.list.head(own.list.len()) == own) & (
        pl.col("prompt_tokens").shift(-1).over("session_id") >= tokens
    )
    whole = later.list.head(tokens // size)
    known = pl.col("session_id").is_not_null() & repeats
    return frame.select(pl.when(known).then(whole).otherwise(own).alias("prefix_hashes")).to_series()


def _requests(trace: Trace, workload: Workload, outcome: Outcome, scores: pl.Series | None) -> pl.DataFrame:
    """`Run.requests`."""
    import polars as pl

    done = outcome.frame()
    frame = pl.DataFrame(
        {
            "request_id": workload.request_id,
            "arrival_s": workload.arrival_s,
            **{name: done[name] for name in ("first_scheduled_s", "first_token_s", "finish_s", "scored_s")},
            "prompt_tokens": workload.prompt_tokens,
            "output_tokens": workload.output_tokens,
            **{name: done[name] for name in ("cached_tokens", "preemptions", "recomputed_tokens")},
            "score": pl.Series(scores if scores is not None else [None] * len(workload), dtype=pl.Float64),
            "promoted": done["promoted"],
            "rejected": done["rejected"],
        }
    )
    if "client_id" in trace.frame.columns:
        frame = frame.with_columns(trace.frame["client_id"])
    return frame

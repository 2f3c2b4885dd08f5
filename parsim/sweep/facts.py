"""What the page says of trace, engine and choices; everything in it is the same for the same sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from parsim.engine.scoring_cost import ScoringCost
from parsim.sweep import plan
from parsim.sweep.bound import lower_bound_ms
from parsim.sweep.capacity import Capacity
from parsim.sweep.evidence import budget, looks
from parsim.sweep.spec import SweepSpec
from parsim.sweep.workload import Workload
from parsim.traces import bundled_trace
from parsim.traces.sessions import later_turns


def bounds(workload: Workload, grid: plan.Grid, loads: Sequence[float], seed: int) -> list[dict[str, float]]:
    """The lower bound on the mean per-token latency at every load, for the trace of one seed."""
    engine, frame = grid.engine, workload.trace(seed, len(workload.first)).frame
    total = pl.col("prompt_tokens") + pl.col("output_tokens")
    fits = frame.filter(total <= engine.max_model_len, total <= engine.usable_blocks * engine.block_size)
    arrival, prompt, output = (fits[c].to_numpy() for c in ("arrival_s", "prompt_tokens", "output_tokens"))
    shared = engine.enable_prefix_caching and workload.first.has_prefix_hashes
    return [
        {
            "load": load,
            "seed": seed,
            "mean_per_token_latency_ms": lower_bound_ms(
                arrival / load, prompt, output, 1 / output, engine, shared
            ),
        }
        for load in loads
    ]


def score_taus(frame: pl.DataFrame) -> dict[str, float]:
    """Kendall tau-b with the response lengths of every real score of the trace; of the bundled one over all its
    prompts, of which a seed draws some twice."""
    from parsim.emulation import sampled_tau_b

    lengths = frame["output_tokens"].to_numpy()
    names = [column for column in frame.columns if column.startswith("score.")]
    return {name.removeprefix("score."): sampled_tau_b(frame[name].to_numpy(), lengths) for name in names}


def describe(
    spec: SweepSpec,
    grid: plan.Grid,
    workload: Workload,
    loads: Sequence[float],
    focus: float,
    capacity: Capacity,
    scoring: ScoringCost | None,
) -> dict[str, Any]:
    """The facts that are known before the runs are judged."""
    frame = workload.first.frame
    counts = looks(len(workload.seeds), budget(spec.most_seeds, frame.height, len(workload.seeds)))
    return {
        "name": spec.name,
        "trace": {
            "name": workload.first.name,
            "requests": frame.height,
            "rate_rps": workload.rate_rps,
            "span_s": workload.first.span_s,
            "mean_prompt_tokens": frame["prompt_tokens"].mean(),
            "mean_output_tokens": frame["output_tokens"].mean(),
            "p99_output_tokens": frame["output_tokens"].quantile(0.99),
            "redrawn": workload.redrawn,
            "equal_prompts": frame["prompt_tokens"].n_unique() == 1 and not workload.first.has_prefix_hashes,
            "equal_responses": frame["output_tokens"].n_unique() == 1,
            "metadata": workload.first.metadata,
            "later_turns": later_turns(frame),
        },
        "engine": grid.engine.model_dump(mode="json"),
        "policies": {
            name: {
                "label": p.label,
                "summary": p.summary,
                "starvation_threshold_s": p.starvation_threshold_s,
                "victim": p.victim,
                "emulated_tau": p.emulated_tau,
                "score": p.score,
                "clairvoyant": p.clairvoyant,
                "ranked": p.ranked,
                "has_predictor": p.has_predictor,
                "runs_in_vllm": p.runs_in_vllm,
            }
            for name, p in grid.base.items()
        },
        "candidate": grid.candidate.name if grid.candidate else None,
        "emulated": grid.emulated,
        "tau_range": list(grid.tau_range),
        "left_out": list(grid.left_out),
        "tau_source": "assumed: no scores, so no tau is known; predictors reached 0.2 to 0.6 on unseen traffic"
        if set(grid.emulated) - set(spec.emulate)
        else "given in the sweep file",
        "equal_scores": {
            name: p.emulated_tau is None and p.score in frame.columns and frame[p.score].n_unique() == 1
            for name, p in grid.base.items()
        },
        "score_taus": score_taus(bundled_trace().frame if spec.trace.bundled else frame),
        "capacity_rps": capacity.rps if capacity.known else math.nan,
        "capacity": {**asdict(capacity), "known": capacity.known},
        "level": 1 - 0.05 / len(counts),
        "looks": counts,
        "loads": list(loads),
        "focus_load": focus,
        "seeds": list(workload.seeds),
        "slo": spec.limits,
        "objective": spec.objective,
        "subject_to": list(spec.subject_to),
        "tail_bound": spec.tail_bound,
        "scoring_cost": scoring.provenance if scoring else None,
        "scoring_shares_core": scoring is not None and scoring.shares_core,
    }

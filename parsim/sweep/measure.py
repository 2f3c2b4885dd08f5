"""Run one point and reduce it to what the report needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from parsim.engine.scoring_cost import ScoringCost
from parsim.metrics import latency_columns, summarize
from parsim.simulation import simulate
from parsim.sweep.dial import dial_scores
from parsim.sweep.point import Point
from parsim.traces import Trace

SERIES_BINS = 400


@dataclass(frozen=True)
class Outcome:
    """What is kept of one run.

    Attributes:
        metrics: name -> value, of `parsim.metrics`.
        facts: reached tau, rejections and the like.
        groups: one row a (kind, group): output-length deciles and clients.
        requests, series: frames, where the point asked for them.
    """

    metrics: dict[str, float]
    facts: dict[str, Any]
    groups: list[dict[str, Any]]
    requests: pl.DataFrame | None = None
    series: pl.DataFrame | None = None


def measure(trace: Trace, point: Point, slo: dict[str, float], scoring: ScoringCost | None) -> Outcome:
    """Simulate `point` on `trace`.

    Args:
        trace, point: what is run.
        slo: latency targets in ms by name.
        scoring: what a predictor's scores cost; None for nothing.
    """
    policy = point.policy
    facts: dict[str, Any] = {}
    if point.dial is not None:
        scores, facts["reached_tau"] = dial_scores(
            trace.frame["output_tokens"].to_numpy(), point.dial, point.seed
        )
        trace = Trace(
            trace.frame.with_columns(pl.Series(policy.score or "score.dial", scores)), trace.metadata
        )
    run = simulate(
        trace,
        point.engine,
        policy,
        load=point.load,
        seed=point.seed,
        scoring=scoring,
        steps="log" if point.keep == "steps" else "none",
    )
    rows = per_request(run.requests)
    facts |= {"rejections": _rejections(run.requests), **_plain(run.metadata)}
    return Outcome(
        metrics=summarize(run.requests, slo or None, run.metadata["mean_kv_usage"], run.gaps),
        facts=facts,
        groups=_groups(rows),
        requests=run.requests if point.keep != "metrics" else None,
        series=series(run.steps, point.engine.usable_blocks) if run.steps is not None else None,
    )


@lru_cache(maxsize=4)
def _trace_file(path: str, fingerprint: str, with_text: bool) -> Trace:
    from parsim.traces import read_trace

    trace = read_trace(path)
    if with_text:
        return trace
    return Trace(trace.frame.drop("prompt", strict=False), trace.metadata)


def measure_file(
    path: Path,
    fingerprint: str,
    point: Point,
    slo: dict[str, float],
    scoring: ScoringCost | None,
) -> Outcome:
    """`measure` on a trace file, which a worker reads once."""
    return measure(_trace_file(str(path), fingerprint, point.policy.learns), point, slo, scoring)


def per_request(requests: pl.DataFrame) -> pl.DataFrame:
    """Completed requests in arrival order with the latencies of `parsim.metrics`, in seconds."""
    return requests.filter(pl.col("finish_s").is_not_null()).with_columns(latency_columns())


def _groups(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Latency by output-length decile and by client, the 20 busiest.

    Equal lengths are in one group, so that deciles may be fewer than ten and of unlike size; the shortest is "1" and
    the longest, where there are two or more, "10".
    """
    if rows.is_empty():
        return []
    tenth = (pl.col("output_tokens").rank("min") - 1) * 10 // pl.len() + 1
    decile = pl.when(tenth.max() > 1, tenth == tenth.max()).then(10).otherwise(tenth)
    parts = [rows.with_columns(kind=pl.lit("decile"), group=decile.cast(pl.Int64).cast(pl.String))]
    if "client_id" in rows.columns and rows["client_id"].n_unique() > 1:
        busiest = (
            rows["client_id"].value_counts(sort=True).sort("count", "client_id", descending=[True, False])
        )
        chosen = pl.col("client_id").is_in(busiest["client_id"].head(20).implode())
        parts.append(rows.filter(chosen).with_columns(kind=pl.lit("client"), group=pl.col("client_id")))
    latencies = ("queue", "ttft", "e2el", "per_token_latency")
    return (
        pl.concat(parts)
        .group_by("kind", "group", maintain_order=True)
        .agg(
            pl.len().alias("requests"),
            pl.col("output_tokens").min().alias("shortest"),
            pl.col("output_tokens").max().alias("longest"),
            *[(pl.col(f"{name}_s").mean() * 1e3).alias(f"mean_{name}_ms") for name in latencies],
            *[
                (pl.col(f"{name}_s").quantile(0.99, "linear") * 1e3).alias(f"p99_{name}_ms")
                for name in latencies
            ],
            pl.col("queue_s").max().alias("max_wait_s"),
        )
        .sort("kind", pl.col("group").cast(pl.Int64, strict=False), "group")
        .to_dicts()
    )


def series(steps: pl.DataFrame, usable_blocks: int) -> pl.DataFrame:
    """KV use, running and waiting over time in at most `SERIES_BINS` bins of equal length (the worst of each bin)."""
    start, end = float(steps["start_s"][0]), float(steps["start_s"][-1])
    width = max((end - start) / SERIES_BINS, 1e-9)
    used = 1 - pl.col("free_blocks") / usable_blocks
    return (
        steps.lazy()
        .group_by(((pl.col("start_s") - start) / width).floor().cast(pl.Int64).alias("bin"))
        .agg(
            pl.col("start_s").min().alias("time_s"),
            used.max().alias("kv_usage"),
            pl.col("running").max(),
            pl.col("waiting").max(),
            pl.col("preempted").list.len().sum().alias("preemptions"),
            (pl.col("duration_s").mean() * 1e3).alias("step_ms"),
        )
        .sort("bin")
        .drop("bin")
        .collect()
    )


def _rejections(requests: pl.DataFrame) -> dict[str, int]:
    counts = requests.filter(pl.col("rejected").is_not_null())["rejected"].value_counts().sort("rejected")
    return dict(zip(counts["rejected"].to_list(), counts["count"].to_list(), strict=True))


def _plain(metadata: dict[str, object]) -> dict[str, Any]:
    """The run's metadata that is the same for the same command: no clock readings."""
    return {
        key: value
        for key, value in metadata.items()
        if isinstance(value, str | int | float | bool) and key not in ("cpu_s", "wall_s")
    }

"""Every metric, defined once: name, unit, formula, and how it is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Metric:
    """What a number means.

    Attributes:
        name: vLLM's benchmark key where it has one.
        unit: of the value.
        formula: in the columns of a result row; shown wherever the metric is.
        better: which direction is good.
    """

    name: str
    unit: str
    formula: str
    better: Literal["lower", "higher"] = "lower"


LATENCIES: dict[str, tuple[str, str]] = {
    "ttft": ("time to first token", "first_token_s - arrival_s"),
    "tpot": ("time per output token after the first", "(finish_s - first_token_s) / (output_tokens - 1)"),
    "itl": (
        "inter-token latency, each token of a request counted at its mean",
        "(finish_s - first_token_s) / (output_tokens - 1), weighted by output_tokens - 1",
    ),
    "e2el": ("end-to-end latency", "finish_s - arrival_s"),
    "queue": ("wait for the first step", "first_scheduled_s - arrival_s"),
    "per_token_latency": ("end-to-end latency per response token", "(finish_s - arrival_s) / output_tokens"),
}
"""Latencies of one request: what it is and its formula, in seconds; reported in milliseconds."""

STATISTICS: dict[str, str] = {
    "mean": "mean over requests",
    "median": "median over requests",
    "p90": "90th percentile over requests, linear interpolation",
    "p95": "95th percentile over requests, linear interpolation",
    "p99": "99th percentile over requests, linear interpolation",
}

SLO_NAMES = ("ttft", "tpot", "e2el")


def _catalogue() -> dict[str, Metric]:
    metrics = [
        Metric(f"{statistic}_{latency}_ms", "ms", f"1000 * {how} of {formula}")
        for latency, (_, formula) in LATENCIES.items()
        for statistic, how in STATISTICS.items()
    ]
    metrics += [
        Metric("max_wait_s", "s", "max of first_scheduled_s - arrival_s"),
        Metric("request_throughput", "requests/s", "completed / duration_s", "higher"),
        Metric("output_throughput", "tokens/s", "sum of output_tokens / duration_s", "higher"),
        Metric(
            "total_token_throughput",
            "tokens/s",
            "sum of prompt_tokens + output_tokens / duration_s",
            "higher",
        ),
        Metric("request_goodput", "requests/s", "requests within every given SLO / duration_s", "higher"),
        Metric("duration_s", "s", "last finish_s - first arrival_s"),
        Metric("completed", "requests", "requests with a finish_s", "higher"),
        Metric("rejected", "requests", "requests that could never run"),
        Metric("preemptions", "times", "sum of preemptions"),
        Metric("recomputed_tokens", "tokens", "sum of recomputed_tokens: computed again after a preemption"),
        Metric("recompute_share", "1", "recomputed_tokens / (prompt_tokens + output_tokens - cached_tokens)"),
        Metric("cached_tokens", "tokens", "sum of cached_tokens: found in the prefix cache", "higher"),
        Metric("promoted", "requests", "requests that the starvation guard moved ahead"),
        Metric(
            "jain_fairness_slowdown",
            "1",
            "(sum x)^2 / (n * sum x^2) of x = (finish_s - arrival_s) / (finish_s - first_scheduled_s)",
            "higher",
        ),
        Metric("mean_kv_usage", "1", "KV blocks in use / usable blocks, averaged over the time steps ran"),
    ]
    return {metric.name: metric for metric in metrics}


METRICS: dict[str, Metric] = _catalogue()
"""All metrics by name."""


def latency_columns() -> list[pl.Expr]:
    """One expression a latency, in seconds, named `NAME_s`; null where it is undefined (one token: no TPOT)."""
    import polars as pl

    e2el = pl.col("finish_s") - pl.col("arrival_s")
    after_first = pl.col("finish_s") - pl.col("first_token_s")
    gaps = pl.col("output_tokens") - 1
    tpot = pl.when(gaps > 0).then(after_first / gaps)
    return [
        (pl.col("first_token_s") - pl.col("arrival_s")).alias("ttft_s"),
        tpot.alias("tpot_s"),
        tpot.alias("itl_s"),
        e2el.alias("e2el_s"),
        (pl.col("first_scheduled_s") - pl.col("arrival_s")).alias("queue_s"),
        (e2el / pl.col("output_tokens")).alias("per_token_latency_s"),
    ]


def summarize(
    requests: pl.DataFrame, slo: Mapping[str, float] | None = None, mean_kv_usage: float | None = None
) -> dict[str, float]:
    """All metrics of a result frame (one row a request).

    Args:
        requests: columns of a result; rows without `finish_s` (rejected) count only in `rejected`.
        slo: limits in ms by latency name (`ttft`, `tpot`, `e2el`); without it `request_goodput` is absent.
        mean_kv_usage: share of the blocks in use, where the engine knows it.

    Returns:
        Value by metric name; NaN where there is nothing to measure.

    Raises:
        ValueError: an SLO names no latency.
    """
    import polars as pl

    unknown = [name for name in slo or {} if name not in SLO_NAMES]
    if unknown:
        raise ValueError(f"slo {unknown[0]!r}: no such latency (choose from {', '.join(SLO_NAMES)})")
    done = requests.filter(pl.col("finish_s").is_not_null()).with_columns(latency_columns())
    span = done.select(pl.col("finish_s").max() - pl.col("arrival_s").min()).item() if done.height else None
    duration = float(span) if span else float("nan")
    e2el = pl.col("finish_s") - pl.col("arrival_s")
    slowdown = e2el / (pl.col("finish_s") - pl.col("first_scheduled_s"))
    one_row = done.select(
        *(_statistics(latency) for latency in LATENCIES if latency != "itl"),
        pl.col("queue_s").max().alias("max_wait_s"),
        (pl.col("output_tokens").sum() / duration).alias("output_throughput"),
        ((pl.col("prompt_tokens") + pl.col("output_tokens")).sum() / duration).alias(
            "total_token_throughput"
        ),
        (slowdown.sum().pow(2) / (slowdown.pow(2).sum() * pl.len())).alias("jain_fairness_slowdown"),
        *(pl.col(name).sum() for name in ("preemptions", "recomputed_tokens", "cached_tokens", "promoted")),
        (pl.col("prompt_tokens") + pl.col("output_tokens") - pl.col("cached_tokens")).sum().alias("work"),
    ).unnest([latency for latency in LATENCIES if latency != "itl"])
    row = one_row.row(0, named=True)
    work = row.pop("work")
    values = {name: float("nan") if value is None else float(value) for name, value in row.items()}
    values |= _inter_token(done)
    values["recompute_share"] = values["recomputed_tokens"] / work if work else float("nan")
    values["completed"] = float(done.height)
    values["rejected"] = float(requests.height - done.height)
    values["duration_s"] = duration
    values["request_throughput"] = done.height / duration
    if mean_kv_usage is not None:
        values["mean_kv_usage"] = mean_kv_usage
    if slo:
        within = pl.all_horizontal(pl.col(f"{name}_s").fill_null(0.0) * 1e3 <= ms for name, ms in slo.items())
        values["request_goodput"] = done.select(within.sum()).item() / duration
    return {name: values[name] for name in METRICS if name in values}


def _statistics(latency: str) -> pl.Expr:
    import polars as pl

    column = pl.col(f"{latency}_s") * 1e3
    aggregates = {
        "mean": column.mean(),
        "median": column.median(),
        "p90": column.quantile(0.90, "linear"),
        "p95": column.quantile(0.95, "linear"),
        "p99": column.quantile(0.99, "linear"),
    }
    return pl.struct(
        value.alias(f"{statistic}_{latency}_ms") for statistic, value in aggregates.items()
    ).alias(latency)


def _inter_token(done: pl.DataFrame) -> dict[str, float]:
    """Inter-token latency over tokens: each request's mean gap, weighted by its number of gaps."""
    import numpy as np

    gaps = done["output_tokens"].to_numpy() - 1
    keep = gaps > 0
    if not keep.any():
        return {f"{statistic}_itl_ms": float("nan") for statistic in STATISTICS}
    values = done["itl_s"].to_numpy()[keep] * 1e3
    weights = gaps[keep]
    points = {"median": 0.5, "p90": 0.90, "p95": 0.95, "p99": 0.99}
    levels = np.quantile(values, list(points.values()), weights=weights, method="inverted_cdf")
    return {"mean_itl_ms": float(np.average(values, weights=weights))} | {
        f"{statistic}_itl_ms": float(level) for statistic, level in zip(points, levels, strict=True)
    }

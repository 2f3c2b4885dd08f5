"""Every metric, defined once: name, unit, its formula in words and the expression that computes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

Over = Literal["requests", "gaps"]


@dataclass(frozen=True)
class Metric:
    """What a number means.

    Attributes:
        name: vLLM's benchmark key where it has one.
        unit: of the value.
        formula: in the columns of a result row; shown wherever the metric is.
        expr: the same as an expression: over the rows of a result with `latency_columns`, or over the gaps.
        better: which direction is good.
        over: the table of `expr`: one row a request (null times where it was rejected), or the gaps between tokens
            (`gap_s` ascending, `tokens`: how many are that long).
    """

    name: str
    unit: str
    formula: str
    expr: pl.Expr
    better: Literal["lower", "higher"] = "lower"
    over: Over = "requests"


_FINISH, _ARRIVAL, _FIRST, _STARTED = map(
    pl.col, ("finish_s", "arrival_s", "first_token_s", "first_scheduled_s")
)
_DONE = _FINISH.is_not_null()
_PROMPT, _OUTPUT, _CACHED = (
    pl.col(c).filter(_DONE).sum() for c in ("prompt_tokens", "output_tokens", "cached_tokens")
)
_SPAN_S = _FINISH.max() - _ARRIVAL.filter(_DONE).min()
_DURATION_S = pl.when(_SPAN_S > 0).then(_SPAN_S)
_SLOWDOWN = (_FINISH - _ARRIVAL) / (_FINISH - _STARTED)
_GAPS = pl.col("output_tokens") - 1

LATENCIES: dict[str, tuple[str, str, pl.Expr]] = {
    "ttft": ("time to first token", "first_token_s - arrival_s", _FIRST - _ARRIVAL),
    "tpot": (
        "time per output token after the first",
        "(finish_s - first_token_s) / (output_tokens - 1)",
        pl.when(_GAPS > 0).then((_FINISH - _FIRST) / _GAPS),
    ),
    "e2el": ("end-to-end latency", "finish_s - arrival_s", _FINISH - _ARRIVAL),
    "queue": ("wait for the first step", "first_scheduled_s - arrival_s", _STARTED - _ARRIVAL),
    "per_token_latency": (
        "end-to-end latency per response token",
        "(finish_s - arrival_s) / output_tokens",
        (_FINISH - _ARRIVAL) / pl.col("output_tokens"),
    ),
}
"""Latencies of one request: what it is, its formula and expression, in seconds; reported in milliseconds."""

QUANTILES = {"median": 0.5, "p90": 0.90, "p95": 0.95, "p99": 0.99}
_HOW = {"mean": "mean", "median": "median"} | {
    name: f"{name[1:]}th percentile, linear interpolation," for name in ("p90", "p95", "p99")
}
SLO_NAMES = ("ttft", "tpot", "e2el")


def _of_requests(latency: str, formula: str) -> Iterator[Metric]:
    column = pl.col(f"{latency}_s").filter(_DONE) * 1e3
    values = {"mean": column.mean(), "median": column.median()} | {
        name: column.quantile(q, "linear") for name, q in QUANTILES.items() if name != "median"
    }
    for name, value in values.items():
        yield Metric(f"{name}_{latency}_ms", "ms", f"1000 * {_HOW[name]} over requests of {formula}", value)


def _of_gaps() -> Iterator[Metric]:
    """Inter-token latency as vLLM's benchmark has it: over the gaps of all requests together."""
    gap_ms, tokens = pl.col("gap_s") * 1e3, pl.col("tokens")
    words = "over all tokens but each request's first of the time since the token before"
    yield Metric(
        "mean_itl_ms",
        "ms",
        f"1000 * mean {words}",
        (gap_ms * tokens).sum() / pl.when(tokens.sum() > 0).then(tokens.sum()),
        over="gaps",
    )
    up_to = tokens.cum_sum()
    for name, q in QUANTILES.items():
        place = (tokens.sum() - 1) * q
        below, above = (
            gap_ms.gather(up_to.search_sorted(p.cast(pl.Int64), "right"), null_on_oob=True).first()
            for p in (place.floor(), place.ceil())
        )
        value = below + (above - below) * (place - place.floor())
        yield Metric(f"{name}_itl_ms", "ms", f"1000 * {_HOW[name]} {words}", value, over="gaps")


def _catalogue() -> Iterator[Metric]:
    for latency, (_, formula, _) in LATENCIES.items():
        yield from _of_requests(latency, formula)
        if latency == "tpot":
            yield from _of_gaps()
    yield Metric(
        "max_wait_s", "s", "max of first_scheduled_s - arrival_s", pl.col("queue_s").filter(_DONE).max()
    )
    yield Metric(
        "request_throughput", "requests/s", "completed / duration_s", _FINISH.count() / _DURATION_S, "higher"
    )
    yield Metric(
        "output_throughput", "tokens/s", "sum of output_tokens / duration_s", _OUTPUT / _DURATION_S, "higher"
    )
    yield Metric(
        "total_token_throughput",
        "tokens/s",
        "sum of prompt_tokens + output_tokens / duration_s",
        (_PROMPT + _OUTPUT) / _DURATION_S,
        "higher",
    )
    yield Metric(
        "request_goodput",
        "requests/s",
        "requests within every given SLO / duration_s",
        pl.col("within_slo").filter(_DONE).sum() / _DURATION_S,
        "higher",
    )
    yield Metric("duration_s", "s", "last finish_s - first arrival_s", _DURATION_S)
    yield Metric("completed", "requests", "requests with a finish_s", _FINISH.count(), "higher")
    yield Metric("rejected", "requests", "requests that could never run", _FINISH.null_count())
    yield Metric("preemptions", "times", "sum of preemptions", pl.col("preemptions").filter(_DONE).sum())
    yield Metric(
        "recomputed_tokens",
        "tokens",
        "sum of recomputed_tokens: computed again after a preemption",
        pl.col("recomputed_tokens").filter(_DONE).sum(),
    )
    work = _PROMPT + _OUTPUT - _CACHED
    yield Metric(
        "recompute_share",
        "1",
        "recomputed_tokens / (prompt_tokens + output_tokens - cached_tokens)",
        pl.col("recomputed_tokens").filter(_DONE).sum() / pl.when(work > 0).then(work),
    )
    yield Metric(
        "cached_tokens", "tokens", "sum of cached_tokens: found in the prefix cache", _CACHED, "higher"
    )
    yield Metric(
        "promoted",
        "requests",
        "requests that the starvation guard moved ahead",
        pl.col("promoted").filter(_DONE).sum(),
    )
    yield Metric(
        "jain_fairness_slowdown",
        "1",
        "(sum x)^2 / (n * sum x^2) of x = (finish_s - arrival_s) / (finish_s - first_scheduled_s)",
        _SLOWDOWN.sum().pow(2) / (_SLOWDOWN.pow(2).sum() * _SLOWDOWN.count()),
        "higher",
    )
    yield Metric(
        "mean_kv_usage",
        "1",
        "KV blocks in use / usable blocks, averaged over the time steps ran",
        pl.col("mean_kv_usage").first(),
    )


METRICS: dict[str, Metric] = {metric.name: metric for metric in _catalogue()}
"""All metrics by name."""


def latency_columns() -> list[pl.Expr]:
    """One expression a latency, in seconds, named `NAME_s`; null where it is undefined (one token: no TPOT)."""
    return [expr.alias(f"{name}_s") for name, (_, _, expr) in LATENCIES.items()]


def summarize(
    requests: pl.DataFrame,
    slo: Mapping[str, float] | None = None,
    mean_kv_usage: float | None = None,
    gaps: pl.DataFrame | None = None,
) -> dict[str, float]:
    """All metrics of a result frame (one row a request).

    Args:
        requests: columns of a result; rows without `finish_s` (rejected) count only in `rejected`.
        slo: limits in ms by latency name (`ttft`, `tpot`, `e2el`); without it `request_goodput` is absent.
        mean_kv_usage: share of the blocks in use, where the engine knows it.
        gaps: the times between tokens (`TokenGaps.frame`), where they are known; without them `*_itl_ms` are absent.

    Returns:
        Value by metric name; NaN where there is nothing to measure.

    Raises:
        ValueError: an SLO names no latency.
    """
    unknown = [name for name in slo or {} if name not in SLO_NAMES]
    if unknown:
        raise ValueError(f"slo {unknown[0]!r}: no such latency (choose from {', '.join(SLO_NAMES)})")
    tables = {"requests": requests.with_columns(latency_columns())}
    absent = set()
    if slo:
        within = pl.all_horizontal(pl.col(f"{name}_s").fill_null(0.0) * 1e3 <= ms for name, ms in slo.items())
        tables["requests"] = tables["requests"].with_columns(within_slo=within)
    else:
        absent.add("request_goodput")
    if mean_kv_usage is not None:
        tables["requests"] = tables["requests"].with_columns(mean_kv_usage=pl.lit(mean_kv_usage))
    else:
        absent.add("mean_kv_usage")
    if gaps is not None:
        tables["gaps"] = gaps
    wanted = [m for m in METRICS.values() if m.name not in absent and m.over in tables]
    values: dict[str, float | None] = {}
    for name, table in tables.items():
        values |= table.select(m.expr.alias(m.name) for m in wanted if m.over == name).row(0, named=True)
    found = {m.name: values[m.name] for m in wanted}
    return {name: float("nan") if value is None else float(value) for name, value in found.items()}

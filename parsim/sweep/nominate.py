"""Which settings are put to the trial, by what the grid's own seeds say, each made as plain as it may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from parsim.defaults import DEFAULT_STARVATION_THRESHOLD_S
from parsim.metrics import METRICS
from parsim.sweep.choose import EQUAL, Constraint, changed_settings
from parsim.sweep.configuration import POLICY_COLUMNS, configuration_columns
from parsim.sweep.results import Results

TAIL = "p99_ttft_ms"
LEADING = 2
"""Candidates by their mean alone, beside the best of each kind."""
TAIL_SLACK = 1.05
"""A setting is taken back where that costs no more than `EQUAL` in the objective and this much in the tail."""
Row = dict[str, Any]


def defaults(results: Results, load: float) -> Row:
    """vLLM's defaults: FCFS with the sweep's first engine, and the mean of every metric over the grid's seeds."""
    rows = results.base["fcfs", load]
    own = rows.select(configuration_columns(rows)).row(0, named=True)
    means = rows.select(pl.col([m for m in METRICS if m in rows.columns]).mean()).row(0, named=True)
    return {**own, **means}


def nominees(
    results: Results, objective: str, constraints: Sequence[Constraint], tail_bound: float | None, load: float
) -> list[Row]:
    """vLLM's defaults, then the leading settings of grid, guards, cures and search, and the best of each plain kind:
    without a predictor, an order on the unchanged engine, FCFS on another engine.

    Only the grid's seeds are looked at: what the trial judges by is fresh.
    """
    columns = configuration_columns(results.results)
    own = defaults(results, load)
    cure = pl.lit(value=not results.select("search").is_empty()) & (pl.col("study") == "cures")
    rows = results.results.filter(
        pl.col("study").is_in(["main", "guard", "search"])
        | (cure & (pl.col("num_gpu_blocks") == own["num_gpu_blocks"])),
        pl.col("seed").is_in(results.facts["seeds"]),
        pl.col("load") == load,
        pl.col("runs_in_vllm"),
        pl.col("trace_requests").is_null(),
    ).unique([*columns, "seed"], maintain_order=True)
    same = [pl.col(name).eq_missing(pl.lit(own[name])) for name in columns]
    base = rows.filter(*same).select("seed", base=objective, base_tail=TAIL)
    sign = 1 if METRICS[objective].better == "lower" else -1
    table = (
        rows.join(base, on="seed")
        .group_by(columns, maintain_order=True)
        .agg(
            (sign * (pl.col("base") / pl.col(objective)).log()).mean().alias("gain"),
            (pl.col(TAIL) / pl.col("base_tail")).log().mean().exp().alias("tail"),
            *[pl.col(c.metric).mean() for c in constraints],
        )
        .filter(pl.col("gain").is_finite())
        .with_columns(
            excess=pl.sum_horizontal([c.excess().clip(lower_bound=0) for c in constraints] or [pl.lit(0.0)])
        )
        .sort("excess", -pl.col("gain"), maintain_order=True)
    )
    engine = pl.all_horizontal(
        pl.col(c).eq_missing(pl.lit(own[c])) for c in columns if c not in POLICY_COLUMNS
    )
    ordered = table.filter(engine, pl.col("policy") != own["policy"])
    close = ordered["gain"] >= (ordered["gain"].max() or 0.0) - EQUAL  # type: ignore[operator]
    asked = ordered.filter(close, pl.col("policy").eq_missing(pl.lit(results.facts["candidate"])))
    within = table
    if tail_bound is not None:
        within = table.filter((pl.col("tail") <= tail_bound) | pl.col("tail").is_nan())
    predictors = [n for n, p in results.facts["policies"].items() if p["has_predictor"]]
    kinds = (
        (within, LEADING),
        (within.filter(~pl.col("policy").is_in(predictors)), 1),
        (ordered if asked.is_empty() else asked, 1),
        (within.filter(pl.col("policy") == own["policy"], pl.col("victim") == own["victim"], ~engine), 1),
    )
    first = table.filter(*same).select(columns)
    parts = [first, *(part.select(columns).head(count) for part, count in kinds)]
    candidate = results.facts["candidate"]
    if candidate is not None:  # so that the page can say what ranking adds to an engine that does without
        known = results.facts["policies"][candidate]
        fields = [pl.lit(known.get(c, candidate), first.schema[c]).alias(c) for c in POLICY_COLUMNS]
        parts.append(parts[-1].with_columns(fields))
    return pl.concat(parts).unique(maintain_order=True).to_dicts()


def plainer(
    rows: Sequence[Row],
    mean: Callable[[Row], tuple[float, float]],
    objective: str,
) -> list[Row]:
    """Every candidate with those settings taken back to vLLM's defaults that do not matter, one at a time: victim,
    guard, then the engine's. `rows[0]` are the defaults; `mean` runs a row and tells its objective and p99 TTFT."""
    found = [rows[0]]
    better_low = METRICS[objective].better == "lower"
    for row in rows[1:]:
        now, reached = row, None
        for name in changed_settings(row, rows[0]):
            if name == "policy" or len(changed_settings(now, rows[0])) < 2:
                continue
            trial = taken_back(now, rows[0], name)
            if trial == now:
                continue
            reached = reached or mean(now)
            other = mean(trial)
            worse = other[0] / reached[0] if better_low else reached[0] / other[0]
            if worse <= 1 + EQUAL and not other[1] > TAIL_SLACK * reached[1]:
                now = trial
        if now not in found:
            found.append(now)
    return found


def taken_back(row: Row, own: Row, name: str) -> Row:
    """The row with one setting as in `own`; a step's budget never falls below the slots."""
    value = DEFAULT_STARVATION_THRESHOLD_S if name == "starvation_threshold_s" else own[name]
    back = {**row, name: value}
    seqs, tokens = (back.get(field, 0) for field in ("max_num_seqs", "max_num_batched_tokens"))
    return row if tokens < seqs else back

"""Overload by its duration: what the order gains the longer it lasts, with the starvation guard and without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from parsim.stats import Interval
from parsim.sweep.judge import HEADLINE
from parsim.sweep.plan import Grid
from parsim.sweep.point import Point
from parsim.sweep.results import Results

SHARES = (0.125, 0.25, 0.5, 1.0, 2.0)
"""Lengths that are run, as shares of the trace."""
MOST_REQUESTS = 16_000


def points(grid: Grid, policy: str, load: float, requests: int, seeds: Sequence[int]) -> list[Point]:
    """FCFS, the policy, and the policy without its guard, on traces of different lengths."""
    ranked = grid.base[policy]
    policies = [grid.base["fcfs"], ranked]
    if ranked.starvation_threshold_s is not None:
        policies.append(replace(ranked, starvation_threshold_s=None))
    counts = {round(share * requests) for share in SHARES}
    return [
        Point(of, grid.engine, load, seed, requests=count)
        for count in sorted(count for count in counts if 2 <= count <= max(MOST_REQUESTS, requests))
        for of in policies
        for seed in seeds
    ]


def curve(results: Results) -> pl.DataFrame:
    """requests, lasts_s, guard_s (None: no guard), gain, low, high, promoted (share of the requests), ascending."""
    rows = results.select("duration")
    if rows.is_empty():
        return pl.DataFrame()
    trace, load = results.facts["trace"], results.facts["focus_load"]
    found = []
    for (count,), part in rows.partition_by("trace_requests", as_dict=True, maintain_order=True).items():
        fcfs = part.filter(pl.col("policy") == "fcfs")
        ranked = part.filter(pl.col("policy") != "fcfs")
        for (guard,), own in ranked.partition_by(
            "starvation_threshold_s", as_dict=True, maintain_order=True
        ).items():
            gain: Interval = results.ratio(fcfs, own, HEADLINE)
            found.append(
                {
                    "requests": count,
                    "lasts_s": int(str(count)) / trace["requests"] * trace["span_s"] / load,
                    "guard_s": guard,
                    "gain": gain.value,
                    "low": gain.low,
                    "high": gain.high,
                    "promoted": float((own["promoted"] / own["completed"]).to_numpy().mean()),
                }
            )
    return pl.DataFrame(found, schema_overrides={"guard_s": pl.Float64})

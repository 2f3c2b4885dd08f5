"""Where ordering matters: gain over load x the limit of the engine that binds."""

from __future__ import annotations

import math

import polars as pl

from parsim.report import charts
from parsim.report.page import Chart, Columns, Prose, Section
from parsim.report.phrases import display
from parsim.report.verdict import HEADLINE, QUEUE_SHARE, queue_share
from parsim.sweep.results import Results

LIMITS = {
    "max_num_seqs": ("slots (max_num_seqs)", "slots"),
    "num_gpu_blocks": ("KV blocks", "KV blocks"),
    "max_num_batched_tokens": ("token budget of a step (max_num_batched_tokens)", "tokens a step"),
}
"""The engine's limits by field: in a heading, and after a number."""


def section(results: Results) -> Section | None:
    """A map for the oracle and one for the candidate policy."""
    if results.select("map").is_empty():
        return None
    limit = results.facts["limit"]
    names = dict.fromkeys(n for n in (results.facts["candidate"], "oracle") if n)
    rate = results.facts["focus_load"] * results.facts["trace"]["rate_rps"]
    own = results.facts["engine"][limit]
    maps = [
        Chart(
            charts.gain_map(cells(results, name), limit, LIMITS[limit][1], own, rate_text(rate)),
            f"Gain of {display(results, name) if name != 'oracle' else 'Oracle SJF'} over FCFS",
            "FCFS mean latency per token / the policy's; blue helps, orange hurts; red frame: the verdict's point.",
        )
        for name in names
    ]
    return Section(
        "Where ordering matters",
        [Columns(maps), Prose(onset(results))],
        f"Load against the {LIMITS[limit][0]}, the limit that FCFS reaches first here. One run a cell (first seed).",
        "map",
    )


def rate_text(rate: float) -> str:
    """A load of the map: its rate, or that it is a burst, which has none."""
    return "all at once" if math.isnan(rate) else f"{rate:.3g}"


def cells(results: Results, policy: str) -> pl.DataFrame:
    """rate_rps, the limit, gain, tail, text of every cell."""
    limit = results.facts["limit"]
    keys = ["load", limit, "seed"]
    rows = results.select("map", policy=policy)
    fcfs = results.select("map", policy="fcfs").select(*keys, base=HEADLINE, base_tail="p99_e2el_ms")
    frame = (
        rows.join(fcfs, on=keys)
        .group_by("load", limit, "rate_rps", maintain_order=True)
        .agg(
            gain=(pl.col("base") / pl.col(HEADLINE)).mean(),
            tail=(pl.col("p99_e2el_ms") / pl.col("base_tail")).mean(),
        )
    )
    return frame.with_columns(
        rate=pl.col("rate_rps").map_elements(rate_text, return_dtype=pl.String),
        log_gain=pl.col("gain").log(2).clip(-4, 4),
        text=pl.col("gain").map_elements(
            lambda g: f"{g:.2f}x" if g < 10 else f"{g:.0f}x", return_dtype=pl.String
        ),
    ).filter(pl.col("gain").is_finite())


def onset(results: Results) -> list[str]:
    """Between which loads queueing begins for each value of the limit; values alike are told together."""
    limit = results.facts["limit"]
    rows = results.select("map", policy="fcfs").with_columns(
        queues=pl.col("mean_queue_ms") >= QUEUE_SHARE * pl.col("mean_e2el_ms")
    )
    where: dict[str, list[str]] = {}
    for value in sorted(rows[limit].unique().to_list()):
        if value == results.facts["engine"][limit]:  # the grid knows more: all loads and seeds
            rates = [load * results.facts["trace"]["rate_rps"] for load in results.loads]
            queues = [queue_share(results, load) >= QUEUE_SHARE for load in results.loads]
        else:
            one = rows.filter(pl.col(limit) == value).sort("rate_rps")
            rates, queues = one["rate_rps"].to_list(), one["queues"].to_list()
        where.setdefault(between(rates, queues), []).append(f"{value:,}")
    told = [f"with {_and(values)} {LIMITS[limit][1]} {text}" for text, values in where.items()]
    return [f"FCFS requests wait {QUEUE_SHARE:.0%} of their latency or more: " + "; ".join(told) + "."]


def between(rates: list[float], queues: list[bool]) -> str:
    """From which rate on there is a queue, as exactly as these rates tell."""
    if math.isnan(rates[0]):
        return "in this burst" if any(queues) else "not in this burst"
    if not any(queues):
        return "at no load that was run"
    first = queues.index(True)
    if first == 0:
        return f"at every load from {rate_text(rates[0])} requests/s on"
    return f"from somewhere between {rate_text(rates[first - 1])} and {rate_text(rates[first])} requests/s on"


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"

"""Where ordering matters: gain over load x KV blocks."""

from __future__ import annotations

import math

import polars as pl

from parsim.report import charts
from parsim.report.page import Chart, Columns, Prose, Section
from parsim.report.phrases import display
from parsim.report.verdict import HEADLINE
from parsim.sweep.results import Results


def section(results: Results) -> Section | None:
    """A map for the oracle and one for the candidate policy."""
    if results.select("map").is_empty():
        return None
    names = [n for n in (results.facts["candidate"], "oracle") if n]
    rate = results.facts["focus_load"] * results.facts["trace"]["rate_rps"]
    maps = [
        Chart(
            charts.gain_map(cells(results, name), results.facts["engine"]["num_gpu_blocks"], rate_text(rate)),
            f"Gain of {display(results, name) if name != 'oracle' else 'Oracle SJF'} over FCFS",
            "FCFS mean latency per token / the policy's; blue helps, orange hurts; red frame: the verdict's point.",
        )
        for name in names
    ]
    return Section(
        "Where ordering matters",
        [Columns(maps), Prose([onset(results)])],
        "Load against KV cache size, one run a cell (first seed).",
        "map",
    )


def rate_text(rate: float) -> str:
    return f"{rate:.3g}"


def cells(results: Results, policy: str) -> pl.DataFrame:
    """rate_rps, num_gpu_blocks, gain, tail, text of every cell."""
    keys = ["load", "num_gpu_blocks", "seed"]
    rows = results.select("map", policy=policy)
    fcfs = results.select("map", policy="fcfs").select(*keys, base=HEADLINE, base_tail="p99_e2el_ms")
    frame = (
        rows.join(fcfs, on=keys)
        .group_by("load", "num_gpu_blocks", "rate_rps", maintain_order=True)
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


def onset(results: Results) -> str:
    """At which load queueing begins for each KV size, in words."""
    rows = results.select("map", policy="fcfs")
    queued = rows.filter(pl.col("mean_queue_ms") >= 0.05 * pl.col("mean_e2el_ms"))
    parts = []
    for blocks in sorted(rows["num_gpu_blocks"].unique().to_list()):
        first = queued.filter(pl.col("num_gpu_blocks") == blocks)["rate_rps"].min()
        where = (
            f"{first:.3g} requests/s"
            if isinstance(first, float) and not math.isnan(first)
            else "no load of this map"
        )
        parts.append(f"{blocks:,} blocks: {where}")
    return "Queueing begins (FCFS requests wait 5% of their latency) at " + "; ".join(parts) + "."

"""KV use and queueing over time, and the same minute under two orders."""

from __future__ import annotations

import polars as pl

from parsim.report import charts
from parsim.report.page import Block, Chart, Columns, Section
from parsim.report.sections.latency import labels, legend
from parsim.report.verdict import judge
from parsim.sweep.results import Results

MINUTE_S = 60.0
MOST_ROWS = 120


def section(results: Results) -> Section | None:
    """Series of the run at the load of the verdict, first seed."""
    if results.series.is_empty():
        return None
    names = labels(results)
    frame = results.series.with_columns(label=pl.col("policy").replace_strict(names, default=None))
    few = {name: label for name, label in names.items() if name in ("fcfs", judge(results).policy, "oracle")}
    frame = frame.filter(pl.col("policy").is_in(list(few)))
    blocks: list[Block] = [
        Columns(
            [
                Chart(
                    charts.over_time(frame, few, "waiting", "waiting requests"),
                    "Waiting requests",
                    "",
                    legend(few),
                ),
                Chart(
                    charts.over_time(frame, few, "running", "running requests"),
                    "Running requests",
                    "",
                    legend(few),
                ),
                Chart(
                    charts.over_time(frame, few, "kv_usage", "share of KV blocks in use", share=True),
                    "KV cache in use",
                    "share of the usable blocks",
                    legend(few),
                ),
                Chart(
                    charts.over_time(frame, few, "step_ms", "a step takes", unit="ms"),
                    "Step time",
                    "mean of each interval",
                    legend(few),
                ),
            ]
        )
    ]
    lead = "Ordering can only matter while requests wait. One run at the load of the verdict, first seed."
    return Section("Pressure over time", blocks, lead, "pressure")


def timeline(results: Results) -> Section | None:
    """Head-of-line blocking: the same requests under FCFS and under the judged policy."""
    if results.requests.is_empty():
        return None
    policy = judge(results).policy
    if policy == "fcfs" or policy not in results.requests["policy"].unique().to_list():
        return None
    start = worst_minute(results.requests.filter(pl.col("policy") == "fcfs"))
    names = labels(results)
    charts_ = []
    for name in ("fcfs", policy):
        rows = picture(results.requests.filter(pl.col("policy") == name), start)
        charts_.append(
            Chart(
                charts.blocking(rows, MINUTE_S),
                f"The same minute under {names[name]}",
                "A row is a request, by arrival: grey while it waits, coloured while it runs (dark: long responses).",
            )
        )
    lead = (
        f"Seconds {start:.0f} to {start + MINUTE_S:.0f} of the run, a sample of the requests that arrived then. "
        "Under FCFS short responses (light) wait behind long ones (dark); ranked, they start first and long ones wait."
    )
    return Section("Head-of-line blocking", [Columns(charts_)], lead, "timeline")


def worst_minute(requests: pl.DataFrame) -> float:
    """The start of the minute whose arrivals wait longest under FCFS."""
    minutes = (
        requests.filter(pl.col("first_scheduled_s").is_not_null())
        .group_by((pl.col("arrival_s") // MINUTE_S).alias("minute"))
        .agg((pl.col("first_scheduled_s") - pl.col("arrival_s")).mean().alias("wait"), pl.len())
        .filter(pl.col("len") >= pl.col("len").max() // 4)
        .sort("wait", "minute", descending=[True, False])
    )
    return float(minutes["minute"][0]) * MINUTE_S


def picture(requests: pl.DataFrame, start: float) -> pl.DataFrame:
    """Bars of at most `MOST_ROWS` requests that arrive in the minute from `start`, in seconds from it."""
    inside = requests.filter(
        pl.col("arrival_s").is_between(start, start + MINUTE_S, closed="left"),
        pl.col("finish_s").is_not_null(),
    )
    every = max(1, -(-inside.height // MOST_ROWS))
    return (
        inside.gather_every(every)
        .with_row_index("place")
        .select(
            "place",
            "request_id",
            "output_tokens",
            from_s=(pl.col("arrival_s") - start).round(3),
            start_s=(pl.col("first_scheduled_s") - start).clip(upper_bound=MINUTE_S).round(3),
            to_s=(pl.col("finish_s") - start).clip(upper_bound=MINUTE_S).round(3),
            wait_s=(pl.col("first_scheduled_s") - pl.col("arrival_s")).round(3),
        )
    )

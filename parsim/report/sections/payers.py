"""Who pays: latency by output-length decile and by client."""

from __future__ import annotations

import polars as pl

from parsim.report import charts
from parsim.report.page import Chart, Column, Columns, Prose, Section, Table
from parsim.report.phrases import at_rate
from parsim.report.sections.latency import labels, legend
from parsim.report.verdict import base_rows
from parsim.sweep.results import Results


def section(results: Results) -> Section | None:
    """Latency and wait by decile at the load of the verdict, and a table by client where there are any."""
    if results.groups.is_empty():
        return None
    names, load = labels(results), results.facts["focus_load"]
    at = at_rate(results, load)
    deciles = grouped(results, "decile", load)
    order = deciles.sort(pl.col("group").cast(pl.Int64))["bucket"].unique(maintain_order=True).to_list()
    parts: list[Columns | Table | Prose] = []
    if len(order) > 1:
        caption = "by tenth of response length, shortest first"
        if len(order) < 10:
            caption = "by response length, shortest first; equal lengths are in one group"
        shown = {
            title: deciles.with_columns(value=pl.col(column)).filter(pl.col("value") > 0)
            for column, title in (
                ("mean_e2el_ms", "Mean latency of a request"),
                ("max_wait_s", "Longest wait for a first slot"),
            )
        }
        parts.append(
            Columns(
                [
                    Chart(
                        charts.by_group(frame, names, "response tokens", title, unit, order),
                        title,
                        caption,
                        legend(names),
                    )
                    for (title, frame), unit in zip(shown.items(), ("ms", "s"), strict=True)
                    if frame.height
                ]
            )
        )
        lead = f"{at}: which lengths are served sooner than under FCFS, and which later."
    else:
        lead = f"{at}. All responses are alike ({order[0]} tokens): none is short or long."
    clients = grouped(results, "client", load)
    if clients.height:
        parts.append(client_table(clients, results))
    return Section("Who pays", parts, lead, "who-pays")


def grouped(results: Results, kind: str, load: float) -> pl.DataFrame:
    """Groups of one kind at `load`, means over replicates, with `label` and a `bucket` text."""
    parts = []
    for name, label in labels(results).items():
        rows = base_rows(results, name, load)["row"].implode()
        parts.append(
            results.groups.filter(pl.col("kind") == kind, pl.col("row").is_in(rows))
            .group_by("group", maintain_order=True)
            .agg(
                pl.col("requests").sum(),
                pl.col("shortest").median(),
                pl.col("longest").median(),
                pl.col("^(mean|p99|max)_.*$").mean(),
            )
            .with_columns(label=pl.lit(label), policy=pl.lit(name))
        )
    frame = pl.concat(parts)
    if kind == "client":
        return frame.with_columns(bucket=pl.col("group"))
    spans = frame.group_by("group").agg(
        pl.col("shortest").median().cast(pl.Int64).alias("a"),
        pl.col("longest").median().cast(pl.Int64).alias("b"),
    )
    return (
        frame.join(spans, on="group")
        .with_columns(
            bucket=pl.when(pl.col("a") == pl.col("b"))
            .then(pl.col("a").cast(pl.String))
            .otherwise(pl.format("{}-{}", pl.col("a"), pl.col("b")))
        )
        .drop("a", "b")
    )


def client_table(clients: pl.DataFrame, results: Results) -> Table:
    """Mean and p99 latency of each client under each policy, over that client's latency under FCFS."""
    fcfs = clients.filter(pl.col("policy") == "fcfs").select(
        "group", base="mean_e2el_ms", base_p99="p99_e2el_ms"
    )
    frame = (
        clients.join(fcfs, on="group", how="left")
        .with_columns(
            ratio=pl.col("mean_e2el_ms") / pl.col("base"),
            ratio_p99=pl.col("p99_e2el_ms") / pl.col("base_p99"),
        )
        .sort("group", maintain_order=True)
    )
    columns = {
        "group": Column("Client"),
        "label": Column("Policy"),
        "mean_e2el_ms": Column("Mean latency", "ms", 0),
        "ratio": Column("/ FCFS", "x", 2, "mean latency of this client's requests / the same under FCFS"),
        "p99_e2el_ms": Column("p99 latency", "ms", 0),
        "ratio_p99": Column("/ FCFS", "x", 2, "p99 latency of this client's requests / the same under FCFS"),
        "max_wait_s": Column("Longest wait", "s"),
    }
    chips = {label: name for name, label in labels(results).items()}
    return Table(frame, columns, "By client (the 20 busiest)", "label", chips, folded=True)

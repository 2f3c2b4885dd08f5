"""Latency and tails against load, per policy."""

from __future__ import annotations

import polars as pl

from parsim.metrics import METRICS
from parsim.report import charts
from parsim.report.page import Chart, Column, Columns, Section, Table
from parsim.report.phrases import display
from parsim.report.verdict import base_rows, gain
from parsim.sweep.results import Results

SHOWN = (
    ("mean_per_token_latency_ms", "Mean latency per token", "ms"),
    ("mean_ttft_ms", "Mean time to first token", "ms"),
    ("p99_e2el_ms", "p99 latency of a request", "ms"),
    ("max_wait_s", "Longest wait for a first slot", "s"),
)
TABLE = (
    "mean_per_token_latency_ms",
    "p90_per_token_latency_ms",
    "p99_per_token_latency_ms",
    "mean_ttft_ms",
    "p99_ttft_ms",
    "mean_e2el_ms",
    "p99_e2el_ms",
    "max_wait_s",
    "request_throughput",
    "output_throughput",
    "preemptions",
    "recomputed_tokens",
)


def labels(results: Results) -> dict[str, str]:
    """Policy name -> label as shown."""
    return {name: display(results, name) for name in results.facts["policies"]}


def legend(names: dict[str, str]) -> list[tuple[str, str]]:
    return [(label, name) for name, label in names.items()]


def lines(results: Results, metric: str) -> pl.DataFrame:
    """label, rate_rps, value, low, high for every policy and load."""
    rows = []
    for name, label in labels(results).items():
        for load in results.facts["loads"]:
            chosen = base_rows(results, name, load)
            if chosen.is_empty():
                continue
            interval = results.interval(chosen, metric)
            rows.append({"label": label, "rate_rps": float(chosen["rate_rps"][0]), **interval._asdict()})
    return pl.DataFrame(rows).with_columns(pl.col("value", "low", "high").fill_nan(None))


def section(results: Results) -> Section:
    """Four charts against load and one table with every number."""
    names = labels(results)
    facts = results.facts
    rate = facts["trace"]["rate_rps"]
    marks = {"capacity": facts["capacity_rps"]}
    if not facts["trace"]["redrawn"]:
        marks["your load"] = rate
    low, high = facts["loads"][0] * rate, facts["loads"][-1] * rate
    marks = {name: at for name, at in marks.items() if low <= at <= high}
    blocks = [
        Chart(
            charts.against_load(lines(results, metric), names, f"{title}, {unit}", marks),
            title,
            METRICS[metric].formula,
            legend(names),
        )
        for metric, title, unit in SHOWN
    ]
    how = (
        f"Bands: 95% t intervals over {len(facts['seeds'])} seeds, paired across policies."
        if facts["trace"]["redrawn"]
        else "Bands: 95%, from the trace's requests drawn again in blocks, the same for every policy."
    )
    lead = (
        f"{how} Logarithmic scale. Beyond the capacity the backlog grows for as long as the trace lasts: factors there "
        "grow with the length of the trace and have no limit."
    )
    return Section("Latency against load", [Columns(blocks), table(results)], lead, "latency")


def table(results: Results) -> Table:
    """Every policy and load with its metrics, means over replicates, and the gain over FCFS."""
    rows = []
    for name, label in labels(results).items():
        for load in results.facts["loads"]:
            chosen = base_rows(results, name, load)
            if chosen.is_empty():
                continue
            means = chosen.select(pl.col([m for m in TABLE if m in chosen.columns]).mean()).row(0, named=True)
            won = gain(results, name, load)
            rows.append(
                {
                    "label": label,
                    "rate_rps": float(chosen["rate_rps"][0]),
                    "load": load,
                    "gain": won.value,
                    "gain_interval": f"{won.low:.2f} to {won.high:.2f}"
                    if won.known and name != "fcfs"
                    else "",
                    **means,
                }
            )
    frame = pl.DataFrame(rows, infer_schema_length=None)
    columns = {
        "label": Column("Policy"),
        "rate_rps": Column("Rate", "req/s"),
        "load": Column("Load", "x"),
        "gain": Column("Gain", "x", 2, "FCFS mean latency per token / the policy's"),
        "gain_interval": Column("95%"),
    }
    columns |= {
        m: Column(short(m), METRICS[m].unit, None, METRICS[m].formula) for m in TABLE if m in frame.columns
    }
    return Table(
        frame,
        columns,
        "All numbers: every policy at every load (means over replicates)",
        "label",
        {label: name for name, label in labels(results).items()},
        folded=True,
    )


def short(metric: str) -> str:
    """A metric's name for a table heading, without its unit."""
    return metric.removesuffix("_ms").removesuffix("_s").replace("_", " ")

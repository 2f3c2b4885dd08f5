"""Latency and tails against load, per policy."""

from __future__ import annotations

import polars as pl

from parsim.metrics import METRICS
from parsim.report import axes, charts
from parsim.report.page import Chart, Column, Columns, Section, Table
from parsim.report.phrases import at_rate, display
from parsim.report.verdict import HEADLINE, base_rows
from parsim.stats import Interval
from parsim.sweep.results import Results

short = axes.plain
"""A metric's name for a table heading, without its unit."""
SHOWN = (
    ("mean_per_token_latency_ms", "Mean latency per token", "ms"),
    ("mean_ttft_ms", "Mean time to first token", "ms"),
    ("p99_e2el_ms", "p99 latency of a request", "ms"),
    ("max_wait_s", "Longest wait for a first slot", "s"),
)
GAIN = "FCFS's mean latency per token / the policy's, each seed by itself; geometric mean over seeds"
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


def grid_rows(results: Results, policy: str, load: float) -> pl.DataFrame:
    """The replicates that every policy has at `load`, so that policies are compared on the same ones: the grid's
    seeds, and at the verdict's load those that it asked for."""
    rows = base_rows(results, policy, load)
    if load == results.facts["focus_load"]:
        return rows
    return rows.filter(pl.col("seed").is_in(results.facts["seeds"]))


def grid_gain(results: Results, policy: str, load: float) -> Interval:
    """The gain over FCFS on these."""
    return results.ratio(grid_rows(results, "fcfs", load), grid_rows(results, policy, load), HEADLINE)


def lines(results: Results, metric: str) -> pl.DataFrame:
    """label, rate_rps, value, low, high for every policy and load."""
    rows = []
    for name, label in labels(results).items():
        for load in results.facts["loads"]:
            chosen = grid_rows(results, name, load)
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
    one = len(results.facts["loads"]) == 1
    blocks = []
    for metric, title, unit in SHOWN:
        frame = lines(results, metric)
        if float(frame["value"].max() or 0) > 0:  # type: ignore[arg-type]
            chart = (
                charts.by_policy(frame, names, title, unit)
                if one
                else charts.against_load(frame, names, title, unit, marks)
            )
            blocks.append(Chart(chart, title, METRICS[metric].formula, legend(names)))
    how = (
        f"Bands: 95% t intervals over {len(facts['seeds'])} seeds, more at the verdict's load; cut where wide."
        if facts["trace"]["redrawn"]
        else "Bands: 95%, from the trace's requests drawn again in blocks, the same for every policy."
    )
    lead = f"{how} Logarithmic scale. {overload_words(results)}"
    if one:
        lead = f"{at_rate(results, facts['loads'][0])}. {lead.replace('Bands', 'Lines')}"
    return Section(
        "Latency of each policy" if one else "Latency against load",
        [Columns(blocks), table(results)],
        lead,
        "latency",
    )


def span(interval: Interval) -> str:
    """Both ends; nothing where there are none, or where they are the value itself."""
    low, value, high = (f"{x:.2f}" for x in (interval.low, interval.value, interval.high))
    return f"{low} to {high}" if interval.known and not low == value == high else ""


def overload_words(results: Results) -> str:
    """What a factor beyond the capacity belongs to; nothing where no load is beyond it."""
    facts = results.facts
    rate, requests = facts["trace"]["rate_rps"], facts["trace"]["requests"]
    beyond = [load for load in facts["loads"] if load * rate > facts["capacity_rps"]]
    if not beyond:
        return ""
    shortest, longest = (requests / (load * rate) for load in (beyond[-1], beyond[0]))
    lasted = f"{shortest:.0f} s" if beyond[1:] == [] else f"{shortest:.0f} to {longest:.0f} s"
    return (
        f"Beyond the capacity the backlog grows for as long as requests come, here {lasted}: what is read there "
        "belongs to that time, and another length of the same overload gives another factor."
    )


def table(results: Results) -> Table:
    """Every policy and load with its metrics, means over replicates, and the gain over FCFS."""
    rows = []
    for name, label in labels(results).items():
        for load in results.facts["loads"]:
            chosen = grid_rows(results, name, load)
            if chosen.is_empty():
                continue
            means = chosen.select(pl.col([m for m in TABLE if m in chosen.columns]).mean()).row(0, named=True)
            won = grid_gain(results, name, load)
            fcfs = base_rows(results, "fcfs", load).filter(pl.col("seed").is_in(chosen["seed"].implode()))
            rows.append(
                {
                    "label": label,
                    "rate_rps": float(chosen["rate_rps"][0]),
                    "load": load,
                    "gain": won.value,
                    "gain_interval": span(won) if name != "fcfs" else "",
                    "plain": float(fcfs[HEADLINE].mean() or 0) / float(chosen[HEADLINE].mean() or 1),  # type: ignore[arg-type]
                    **means,
                }
            )
    frame = pl.DataFrame(rows, infer_schema_length=None)
    columns = {
        "label": Column("Policy"),
        "rate_rps": Column("Rate", "req/s"),
        "load": Column("Load", "x"),
        "gain": Column("Gain", "x", 2, GAIN),
        "gain_interval": Column("95%"),
        "plain": Column(
            "Ratio of means", "x", 2, "mean over seeds under FCFS / mean over seeds under the policy"
        ),
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

"""How good must the ranking be? Gain against tau, by kind of error, and the distance to any schedule."""

from __future__ import annotations

import polars as pl

from parsim.report import charts
from parsim.report.page import Block, Chart, Column, Prose, Section, Table, figure
from parsim.report.phrases import at_rate, display
from parsim.report.sections.latency import labels
from parsim.report.verdict import HEADLINE, NOTICEABLE, base_rows, gain
from parsim.sweep.results import Results

KINDS = {
    "everywhere": "everywhere",
    "short": "among the short",
    "long": "among the long",
    "across": "between short and long",
}


def section(results: Results) -> Section | None:
    """The dial, the tau below which the policy hurts, and the lower bound."""
    blocks: list[Block] = []
    frame = dial(results)
    if frame.is_empty() and not results.select("tau").is_empty():
        blocks.append(Prose(["All responses have one length: nothing is ranked, and tau is undefined."]))
    elif not frame.is_empty():
        names = labels(results)
        blocks.append(
            Chart(
                charts.dial(frame, predictors(results), names, "gain in mean latency per token, x"),
                "Gain against ranking quality",
                "Emulated rankings; diamonds: the predictors of this sweep. Dashed: no gain over FCFS.",
                [(labels(results)[name], name) for name in predictors(results)["policy"].to_list()],
            )
        )
        blocks.append(Prose([hurts_below(frame), *tail_words(results)]))
    if results.facts.get("bound"):
        blocks.append(bound_table(results))
    if not blocks:
        return None
    lead = f"{at_rate(results, results.facts['focus_load'])}."
    return Section("How good must the ranking be?", blocks, lead, "tau")


def dial(results: Results, metric: str = HEADLINE) -> pl.DataFrame:
    """errors, tau (reached), gain of every setting of the dial; paired means over seeds. No rows where tau is
    undefined."""
    load = results.facts["focus_load"]
    fcfs = base_rows(results, "fcfs", load).select("seed", base=metric)
    return (
        results.select("tau")
        .join(fcfs, on="seed")
        .group_by("dial", "dial_tau", maintain_order=True)
        .agg(tau=pl.col("reached_tau").mean(), gain=(pl.col("base") / pl.col(metric)).log().mean().exp())
        .filter(pl.col("tau").is_finite())
        .with_columns(errors=pl.col("dial").replace_strict(KINDS))
        .sort("errors", "tau")
    )


def predictors(results: Results) -> pl.DataFrame:
    """Where the sweep's predictors sit on the dial."""
    load = results.facts["focus_load"]
    rows = []
    for name, label in labels(results).items():
        chosen = base_rows(results, name, load)
        tau = results.facts["score_taus"].get(name) if name not in results.facts["emulated"] else None
        if tau is None and chosen.height:
            tau = chosen["reached_tau"].mean()
        facts = results.facts["policies"][name]
        if facts["clairvoyant"] or not facts["ranked"] or tau is None:
            continue
        rows.append({"label": label, "policy": name, "tau": tau, "gain": gain(results, name, load).value})
    return pl.DataFrame(
        rows, schema={"label": pl.String, "policy": pl.String, "tau": pl.Float64, "gain": pl.Float64}
    )


def hurts_below(frame: pl.DataFrame) -> str:
    """The tau at which the gain crosses 1, by linear interpolation along the errors-everywhere line."""
    line = frame.filter(pl.col("dial") == "everywhere").sort("tau")
    tau, won = line["tau"].to_list(), line["gain"].to_list()
    if not won:
        return ""
    if max(won) < NOTICEABLE:
        return f"In these runs no ranking quality gains {NOTICEABLE - 1:.0%}, not even the true order."
    if 1 / NOTICEABLE < won[0] < NOTICEABLE and tau[0] <= 0.01 and min(won) >= 1 / NOTICEABLE:
        return "A random order leaves the mean latency per token as it is under FCFS; better ones gain."
    if min(won) >= 1:
        return "The mean latency per token gains at every ranking quality measured, a random order included."
    for i in range(len(won) - 1, 0, -1):
        if won[i - 1] < 1 <= won[i]:
            if tau[i - 1] <= 0.01:
                return "A random order leaves the mean latency per token as it is under FCFS; every better one gains."
            cross = tau[i - 1] + (1 - won[i - 1]) / (won[i] - won[i - 1]) * (tau[i] - tau[i - 1])
            return f"Below a tau-b of about {cross:.2f} the ranking harms the mean latency per token."
    return "The gain does not rise steadily with the ranking quality here; read the chart."


def tail_words(results: Results) -> list[str]:
    """What the tail does along the dial."""
    frame = dial(results, "p99_e2el_ms").filter(pl.col("dial") == "everywhere").sort("tau")
    if frame.is_empty():
        return []
    worst = frame.sort("gain").row(0, named=True)
    if worst["gain"] >= 0.99:
        return ["The p99 latency is never longer than under FCFS along the dial."]
    return [
        f"The p99 latency is up to {figure(1 / worst['gain'])}x that of FCFS (at tau-b {worst['tau']:.2f})."
    ]


def bound_table(results: Results) -> Table:
    """Oracle SJF and the best policy beside a bound that no schedule can beat."""
    rows = []
    for entry in results.facts["bound"]:
        if entry["seed"] != results.facts["seeds"][0]:
            continue
        load = entry["load"]
        first = pl.col("seed") == results.facts["seeds"][0]
        fcfs, oracle = (base_rows(results, name, load).filter(first) for name in ("fcfs", "oracle"))
        if fcfs.is_empty():
            continue
        low = entry[HEADLINE]
        candidate = results.facts["candidate"]
        rows.append(
            {
                "rate": load * results.facts["trace"]["rate_rps"],
                "fcfs": fcfs[HEADLINE].mean(),
                "candidate": base_rows(results, candidate, load).filter(first)[HEADLINE].mean()
                if candidate
                else None,
                "oracle": oracle[HEADLINE].mean() if oracle.height else None,
                "bound": low,
                "left": oracle[HEADLINE].mean() / low if oracle.height and low > 0 else None,
            }
        )
    columns = {
        "rate": Column("Rate", "req/s"),
        "fcfs": Column("FCFS", "ms/token"),
        "candidate": Column(display(results, results.facts["candidate"] or "fcfs"), "ms/token"),
        "oracle": Column("Oracle SJF", "ms/token"),
        "bound": Column(
            "Lower bound",
            "ms/token",
            None,
            "no schedule, clairvoyant or not, can go below: parsim/sweep/bound.py",
        ),
        "left": Column("Oracle / bound", "x", 2, "what is left above Oracle SJF at most"),
    }
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return Table(
        frame,
        columns,
        "Mean latency per token beside a bound for every schedule (the larger of two relaxations), first seed",
    )

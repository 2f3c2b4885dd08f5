"""Starvation thresholds, preemption victims, and what scoring costs."""

from __future__ import annotations

import polars as pl

from parsim.metrics import METRICS
from parsim.report import charts
from parsim.report.page import Block, Chart, Column, Columns, Prose, Section, Table
from parsim.report.phrases import at_rate, display
from parsim.report.sections.latency import labels, legend
from parsim.report.verdict import HEADLINE, base_rows, mean_of
from parsim.scheduler.queue import SCORE_WAIT_S
from parsim.sweep.results import SCORING, Results


def section(results: Results) -> Section | None:
    """With and without the guard; who is preempted; the cost of scoring."""
    blocks: list[Block] = []
    if not results.select("guard").is_empty():
        blocks.append(_thresholds(results))
    if not results.select("victim").is_empty():
        blocks.append(_victims(results))
    if not blocks:
        return None
    blocks.append(Prose([scoring_words(results)], small=True))
    lead = f"{at_rate(results, results.facts['focus_load'])}."
    return Section("Starvation, preemption and scoring", blocks, lead, "guard")


def _thresholds(results: Results) -> Columns:
    names = {
        n: label
        for n, label in labels(results).items()
        if n in results.select("guard")["policy"].unique().to_list()
    }
    if "oracle" in results.select("guard")["policy"].to_list():
        names.setdefault("oracle", "oracle")
    frame = thresholds(results).with_columns(label=pl.col("policy").replace_strict(names))
    shown = (
        ("max_wait_s", "Longest wait", "of any request, by threshold; 'none' is no guard"),
        (HEADLINE, "Mean latency per token", "what the guard costs: a low threshold is FCFS again"),
    )
    return Columns(
        [
            Chart(
                charts.starvation(frame, names, column, title.lower()),
                title,
                caption,
                legend(names),
            )
            for column, title, caption in shown
        ]
    )


def thresholds(results: Results) -> pl.DataFrame:
    """Means over seeds by policy and threshold, thresholds in ascending order, none last."""
    guard = pl.col("starvation_threshold_s")
    return (
        results.select("guard")
        .group_by("policy", "starvation_threshold_s", maintain_order=True)
        .agg(pl.col("max_wait_s", HEADLINE, "p99_e2el_ms").mean())
        .with_columns(
            threshold=pl.when(guard.is_null())
            .then(pl.lit("none"))
            .otherwise(pl.format("{} s", guard.cast(pl.Int64))),
            threshold_order=guard.fill_null(1e9),
        )
        .filter(pl.col("max_wait_s") > 0)
    )


def _victims(results: Results) -> Table:
    frame = (
        results.select("victim")
        .group_by("num_gpu_blocks", "policy", "victim", maintain_order=True)
        .agg(
            pl.col("preemptions", "recomputed_tokens", HEADLINE, "p99_e2el_ms").mean(),
            tax=pl.col("recompute_share").mean() * 100,
        )
        .with_columns(
            label=pl.col("policy").map_elements(lambda n: display(results, n), return_dtype=pl.String)
        )
    )
    columns = {
        "num_gpu_blocks": Column("KV blocks"),
        "label": Column("Policy"),
        "victim": Column(
            "Victim",
            "",
            None,
            "last: the one admitted last (vLLM's fcfs); worst: the last in the order (vLLM's priority)",
        ),
        "preemptions": Column("Preemptions", "", 0),
        "recomputed_tokens": Column("Recomputed", "tokens", 0),
        "tax": Column("Recompute tax", "%", 1, METRICS["recompute_share"].formula),
        HEADLINE: Column("Mean latency per token", "ms"),
        "p99_e2el_ms": Column("p99 latency", "ms", 0),
    }
    chips = {display(results, n): n for n in frame["policy"].unique().to_list()}
    return Table(
        frame,
        columns,
        "Preemption by victim rule, at the engine's KV size and at a quarter of it",
        "label",
        chips,
    )


def scoring_words(results: Results) -> str:
    """What scoring cost in the runs of the candidate at the load of the verdict, in words."""
    candidate, load = results.facts["candidate"], results.facts["focus_load"]
    if results.facts["scoring_cost"] is None:
        return "Scoring: not charged in this sweep (scoring_cost: free); the PARS paper reports 0.08% of serving time."
    if candidate is None or base_rows(results, candidate, load)[SCORING[0]].null_count():
        return "Scoring: no cost, since the order that this sweep asks about needs no predictor."
    delay_s, late, never, spent_s, core = (mean_of(results, candidate, load, name) for name in SCORING)
    share = spent_s / (mean_of(results, candidate, load, "mean_e2el_ms") / 1e3)
    unanswered = f", {never:.1%} never get a score" if never else ""
    where = (
        "on the engine's own core, which stands still meanwhile,"
        if results.facts["scoring_shares_core"]
        else "on a core beside the engine"
    )
    return (
        f"Scoring is charged: a request stands behind those that have a score until the predictor {where} has answered "
        f"(at most {SCORE_WAIT_S:g} s). Under {candidate} that is {delay_s * 1e3:.3g} ms after arrival in the mean; "
        f"{late:.1%} of the requests are admitted before, since the engine is free or the {SCORE_WAIT_S:g} s are over"
        f"{unanswered}. It takes {spent_s * 1e3:.3g} ms of that core a request, {share:.2%} of the mean latency (the "
        f"PARS paper reports 0.08% of serving time); the core is {core:.0%} busy with it. Source: "
        f"{results.facts['scoring_cost']}."
    )

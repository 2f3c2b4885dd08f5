"""`validation.html`: how far the model was off, in words, tables and charts."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

from parsim.metrics import METRICS
from parsim.report import palette
from parsim.report.charts import policy_colour
from parsim.report.page import Block, Chart, Column, Columns, Prose, Section, Table, Verdict, VerdictKind
from parsim.validate.report.comparison import Order

LIMIT = 0.10
"""A model within this of reality, on the headline metrics, is called right."""

HEADLINE = ("mean_per_token_latency_ms", "p90_per_token_latency_ms", "mean_ttft_ms", "output_throughput")


def verdict(
    table: pl.DataFrame,
    gains: pl.DataFrame,
    ranking: Order | None,
    command: str,
    limit: float = LIMIT,
    headline: Sequence[str] = HEADLINE,
) -> Verdict:
    """The answer in words: was the model within `limit`, and did it rank the policies rightly?"""
    rows = table.filter(pl.col("metric").is_in(list(headline)))
    worst = rows.sort(pl.col("error").abs(), descending=True).row(0, named=True)
    within = abs(worst["error"]) <= limit
    count = rows["label"].n_unique()
    of = f"and {count} policies " if count > 1 else ""
    sentences = [
        f"Over {len(headline)} headline metrics {of}the largest error is "
        f"{worst['error']:+.1%}: {worst['metric']} of {worst['label']}, measured {worst['real']:,.4g} {worst['unit']}, "
        f"predicted {worst['model']:,.4g}."
    ]
    right = True
    if ranking is not None and len(ranking.real) > 1:
        right = ranking.same
        said = (
            "is the same"
            if ranking.real == ranking.model
            else "differs only among ties"
            if right
            else "differs"
        )
        sentences.append(
            f"The order of the policies by mean per-token latency {said}: measured {' < '.join(ranking.real)}; "
            f"predicted {' < '.join(ranking.model)} (values within {ranking.margin:.0%}, or whose "
            f"difference is within the noise, count as ties)."
        )
    if gains.height > 1:
        others = gains.filter(pl.col("policy") != "fcfs")
        off = others.sort(pl.col("error").abs(), descending=True).row(0, named=True)
        best = others.sort("real", descending=True).row(0, named=True)
        sentences.append(
            f"Largest measured speed-up over FCFS: {best['real']:.2f}x by {best['label']} "
            f"(predicted {best['model']:.2f}x). "
            f"The speed-up furthest off is {off['label']}'s: {off['real']:.2f}x measured, "
            f"{off['model']:.2f}x predicted "
            f"({off['error']:+.1%})."
        )
    kind: VerdictKind = "good" if within and right else "mixed" if within or right else "poor"
    words = {
        "good": f"The model was right: within {limit:.0%}, and the policies in the right order.",
        "mixed": f"The model was partly right: {'within' if within else 'not within'} {limit:.0%}, the policies in the "
        f"{'right' if right else 'wrong'} order.",
        "poor": f"The model was wrong: an error above {limit:.0%}, and the policies in the wrong order.",
    }
    if ranking is None or len(ranking.real) < 2:
        words["good"] = f"The model was right: every headline metric within {limit:.0%}."
        words["mixed"] = f"The model was off by more than {limit:.0%} on a headline metric."
    return Verdict(kind, words[kind], sentences, command=command, command_title="This page was made by")


def error_section(table: pl.DataFrame, heading: str = "Measured and predicted", lead: str = "") -> Section:
    """All metrics of all policies, with the interval of each error, as a chart and a table."""
    labels = dict(table.select("policy", "label").unique(maintain_order=True).iter_rows())
    percent = table.with_columns(pl.col("error", "low", "high") * 100)
    shown = percent.select("label", "metric", "unit", "real", "model", "error", "low", "high")
    base = alt.Chart(percent.drop("unit")).encode(
        y=alt.Y("metric:N", sort=list(METRICS), title=None), color=policy_colour(labels)
    )
    dots = base.mark_point(filled=True, size=60, opacity=0.9).encode(
        x=alt.X("error:Q", title="model / real - 1, %"),
        yOffset=alt.YOffset("label:N"),
        tooltip=["label:N", "metric:N", alt.Tooltip("error:Q", format="+.2f")],
    )
    bars = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule()
        .encode(x="low:Q", x2="high:Q", yOffset=alt.YOffset("label:N"))
    )
    zero = (
        alt.Chart(pl.DataFrame({"zero": [0]})).mark_rule(color="#888", strokeDash=[4, 3]).encode(x="zero:Q")
    )
    height = percent["metric"].n_unique() * max(18, 12 * len(labels))
    return Section(
        heading,
        [
            Chart(
                alt.layer(zero, bars, dots).properties(width="container", height=height),
                "Error of the model",
                "A dot a metric and policy; the line is the 95% interval. Zero is a perfect prediction.",
                [(label, policy) for policy, label in labels.items()],
            ),
            Table(
                shown,
                {
                    "label": Column("policy"),
                    "metric": Column("metric", formula="formulas: see the section on metrics"),
                    "unit": Column("unit"),
                    "real": Column("measured"),
                    "model": Column("predicted"),
                    "error": Column("error", "%", 2, "model / real - 1"),
                    "low": Column("95% from", "%", 2),
                    "high": Column("to", "%", 2),
                },
                policy_column="label",
                chips={label: policy for policy, label in labels.items()},
            ),
        ],
        lead,
    )


def gain_section(gains: pl.DataFrame) -> Section:
    """Speed-ups over FCFS, measured and predicted."""
    return Section(
        "Speed-up over FCFS",
        [
            Table(
                gains.with_columns(pl.col("error") * 100).drop("policy"),
                {
                    "label": Column("policy"),
                    "real": Column("measured", "x", 2, "mean per-token latency of FCFS / that of the policy"),
                    "low": Column("95% from", "x", 2, "Student t over repeats"),
                    "high": Column("to", "x", 2),
                    "model": Column("predicted", "x", 2),
                    "error": Column("error", "%", 1),
                },
                policy_column="label",
                chips=dict(gains.select("label", "policy").iter_rows()),
            )
        ],
        "Mean per-token latency of FCFS divided by that of the policy.",
    )


def part_section(frame: pl.DataFrame) -> Section:
    """Where an error comes from: mean seconds in queue, prefill and decode."""
    return Section(
        "Where the error comes from",
        [
            Table(
                frame.drop("policy"),
                {
                    "label": Column("policy"),
                    "part": Column("part of the latency"),
                    "real_s": Column("measured", "s"),
                    "model_s": Column("predicted", "s"),
                    "difference_s": Column("difference", "s", 3, "predicted - measured"),
                },
                policy_column="label",
                chips=dict(frame.select("label", "policy").unique().iter_rows()),
            )
        ],
        "Mean seconds that a request spends waiting, prefilling (first schedule to first token) and decoding.",
    )


def scatter_section(points: pl.DataFrame, labels: dict[str, str]) -> Section:
    """Request by request: what the engine measured against what the model said."""
    charts: list[Block] = []
    for latency, title in (("ttft", "Time to first token"), ("e2el", "End-to-end latency")):
        frame = points.filter(pl.col("latency") == latency).drop("latency")
        top = float(frame.select(pl.max_horizontal("real_ms", "model_ms").max()).item())
        line = alt.Chart(pl.DataFrame({"x": [0.0, top], "y": [0.0, top]})).mark_line(
            color="#888", strokeDash=[4, 3]
        )
        dots = (
            alt.Chart(frame)
            .mark_circle(size=18, opacity=0.5)
            .encode(
                x=alt.X("real_ms:Q", title="measured, ms"),
                y=alt.Y("model_ms:Q", title="predicted, ms"),
                color=policy_colour(labels),
                tooltip=["label:N", "request_id:N", "real_ms:Q", "model_ms:Q"],
            )
        )
        charts.append(
            Chart(
                alt.layer(line.encode(x="x:Q", y="y:Q"), dots).properties(width="container", height=300),
                title,
                "A dot a request; on the dashed line the model is exact.",
                [(label, policy) for policy, label in labels.items()],
            )
        )
    return Section("Request by request", [Columns(charts)])


def step_section(steps: pl.DataFrame, lead: str) -> Section:
    """Residuals of the step-time model: measured against predicted seconds, one dot a step (a sample)."""
    sample = steps.select("measured_ms", "predicted_ms", "kind")
    if sample.height > 3000:
        sample = sample.sample(3000, seed=0)
    top = float(sample.select(pl.max_horizontal("measured_ms", "predicted_ms").quantile(0.999)).item())
    line = alt.Chart(pl.DataFrame({"x": [0.0, top], "y": [0.0, top]})).mark_line(
        color="#888", strokeDash=[4, 3]
    )
    dots = (
        alt.Chart(sample)
        .mark_circle(size=14, opacity=0.45, clip=True)
        .encode(
            x=alt.X("measured_ms:Q", title="measured, ms", scale=alt.Scale(domain=[0, top])),
            y=alt.Y("predicted_ms:Q", title="predicted, ms", scale=alt.Scale(domain=[0, top])),
            color=alt.Color("kind:N", title=None, scale=alt.Scale(range=[palette.GOOD, palette.POOR])),
        )
    )
    return Section(
        "Step times",
        [
            Chart(
                alt.layer(line.encode(x="x:Q", y="y:Q"), dots).properties(width="container", height=300),
                "Steps",
            )
        ],
        lead,
    )


def notes_section(notes: Sequence[str], heading: str = "Conditions and assumptions") -> Section:
    """What a sceptic asks first: machine, noise, settings, what was assumed."""
    return Section(heading, [Prose(list(notes))])


def metric_section(names: Sequence[str]) -> Section:
    """The formula of every metric on the page."""
    frame = pl.DataFrame(
        [{"metric": n, "unit": METRICS[n].unit, "formula": METRICS[n].formula} for n in names if n in METRICS]
    )
    columns = {"metric": Column("metric"), "unit": Column("unit"), "formula": Column("formula")}
    return Section("Metrics", [Table(frame, columns, "Formulas", folded=True)])

"""The page of `parsim reproduce`."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import polars as pl

from parsim.defaults import DEFAULT_STARVATION_THRESHOLD_S
from parsim.files import replacing
from parsim.report import axes, charts
from parsim.report.page import (
    Chart,
    Column,
    Columns,
    Prose,
    Section,
    Table,
    Verdict,
    VerdictKind,
    render_page,
)
from parsim.report.sections import regime
from parsim.report.sections.latency import labels, legend, lines
from parsim.studies.paper import regime_page
from parsim.studies.paper.claims import Claim, backlog_gains, claims
from parsim.studies.paper.spec import OVERLOAD
from parsim.sweep.results import Results

COLUMNS = {
    "claim": Column("The paper claims"),
    "found": Column("Found, with 95% interval"),
    "holds": Column("Where it holds"),
    "outcome": Column("Outcome"),
}
EXPERIMENTS = {
    "llama-poisson": "Llama-3.1-like lengths, Poisson",
    "r1-poisson": "R1-like lengths, Poisson",
}


def write_claims(folder: Path, done: dict[str, Results], regimes: pl.DataFrame) -> tuple[Path, list[Claim]]:
    """Write `folder`/report.html, claims.parquet and regimes.parquet; return the page's path and the rows."""
    rows = claims(done, regimes)
    with replacing(folder / "regimes.parquet") as path:
        regimes.write_parquet(path)
    frame = pl.DataFrame([vars(row) for row in rows])
    with replacing(folder / "claims.parquet") as path:
        frame.write_parquet(path)
    html = render_page(
        "The claims of PARS (arXiv 2510.03243), tried on public data", _sections(rows, frame, done, regimes)
    )
    with replacing(folder / "report.html") as path:
        path.write_text(html, encoding="utf-8")
    return folder / "report.html", rows


def _sections(
    rows: list[Claim], frame: pl.DataFrame, done: dict[str, Results], regimes: pl.DataFrame
) -> list[Section]:
    counts = {
        outcome: sum(row.outcome == outcome for row in rows)
        for outcome in dict.fromkeys(r.outcome for r in rows)
    }
    kind: VerdictKind = "good" if set(counts) == {"reached"} else "mixed"
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    sentences = [
        "Large factors over FCFS arise where requests wait long: on engines with few slots or short KV memory, and "
        "where more arrives than is sustained. There the factor changes with the length of the overload: without a "
        "guard it grows, with one the order is first come, first served again once all wait past its threshold. A "
        "factor without engine, load, duration and guard says little.",
        emulated_words(done),
    ]
    first = Section(
        "", [Verdict(kind, f"Of {len(rows)} claims: {summary}.", sentences), Table(frame, COLUMNS, "Claims")]
    )
    return [
        first,
        regime_page.section(regimes),
        _growth(done),
        *(_latency(done[name], title) for name, title in EXPERIMENTS.items()),
        _map(done),
        _rests(),
    ]


def emulated_words(done: dict[str, Results]) -> str:
    """Which predictors are emulated where."""
    parts = []
    for name, results in done.items():
        if results.facts["emulated"] and not name.startswith("backlog"):
            taus = ", ".join(f"{p} {tau:.2f}" for p, tau in results.facts["emulated"].items())
            parts.append(f"{name}: {taus}")
    if not parts:
        return "All predictors are real."
    return "Emulated predictors (an oracle degraded to this Kendall tau-b): " + "; ".join(parts) + "."


def _growth(done: dict[str, Results]) -> Section:
    results = next(r for n, r in done.items() if n.startswith("backlog"))
    names = {n: label for n, label in labels(results).items() if n != "fcfs"}
    guarded = f"guard {DEFAULT_STARVATION_THRESHOLD_S:g} s"
    guard = pl.when(pl.col("guard_s").is_null()).then(pl.lit("no guard")).otherwise(pl.lit(guarded))
    frame = pl.DataFrame(backlog_gains(done), infer_schema_length=None).with_columns(
        guard=guard, label=pl.col("policy").replace_strict(names)
    )
    x = alt.X(
        "requests:Q", title="requests", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(format="~s")
    )
    y = alt.Y("value:Q", title="gain over FCFS, x")
    dash = alt.StrokeDash(
        "guard:N",
        scale=alt.Scale(domain=["no guard", guarded], range=[[1, 0], [5, 3]]),
        legend=alt.Legend(title="starvation", orient="bottom"),
    )
    base = alt.Chart(frame).encode(x=x, y=y, color=axes.policy_colour(names))
    tips = ["label:N", "guard:N", "requests:Q", alt.Tooltip("value:Q", title="gain", format=".3~g")]
    chart = alt.layer(
        base.mark_line(strokeWidth=2).encode(strokeDash=dash),
        base.mark_circle(size=44, opacity=1).encode(tooltip=[*tips, "low:Q", "high:Q"], detail="guard:N"),
    ).properties(width="container", height=charts.HEIGHT)
    title = f"Gain in mean latency per token at {OVERLOAD:.0%} of capacity, by length of the overload"
    caption = "Means of 3 paired seeds. With the guard all wait past its threshold in the end: FCFS again."
    return Section(
        "Factors change with the length of the overload",
        [Chart(chart, title, caption, legend(names))],
        "The same rate and the same engine, only longer.",
    )


def _latency(results: Results, title: str) -> Section:
    names = labels(results)
    marks = {"capacity": results.facts["capacity_rps"]}
    blocks = [
        Chart(charts.against_load(lines(results, metric), names, what, "ms", marks), what, "", legend(names))
        for metric, what in (
            ("mean_per_token_latency_ms", "Mean latency per token"),
            ("p90_per_token_latency_ms", "p90 latency per token"),
        )
    ]
    return Section(title, [Columns(blocks)])


def _map(done: dict[str, Results]) -> Section:
    section = regime.section(done["llama-poisson"])
    assert section is not None, "the experiment llama-poisson runs the map"
    return Section("Over which loads and KV sizes the largest factor arises", section.blocks, section.lead)


def _rests() -> Section:
    from parsim.studies.paper import spec as paper

    text = " ".join((paper.__doc__ or "").split())
    return Section(
        "What this rests on",
        [Prose([text, "Seeds, engine and every setting: sweep.yaml in each experiment's folder."])],
    )

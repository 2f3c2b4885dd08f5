"""The map of regimes on the page of `reproduce`: where each factor is reached."""

from __future__ import annotations

import altair as alt
import polars as pl

from parsim.report.page import Chart, Column, Columns, Section, Table, figure
from parsim.report.phrases import NAMES, times
from parsim.scheduler.policy import parse_policy
from parsim.studies.paper.regimes import METRICS

MEAN, P90 = METRICS
FACTORS = (
    ("mean latency per token 15.7x lower (Poisson)", MEAN, False, 15.7),
    ("p90 latency per token 12.3x lower (Poisson)", P90, False, 12.3),
    ("mean latency per token 7.7x lower (burst of 2,000)", MEAN, True, 7.7),
)
"""The paper's factors: in words, the metric, whether it is about the burst, the factor."""
MOST_NAMED = 4
BURST = "burst"


def section(regimes: pl.DataFrame) -> Section:
    """A table of where each factor is reached, and a map of the gains for every kind of arrivals."""
    frame = named(regimes)
    table = Table(
        reached(frame),
        {
            "claim": Column("Factor"),
            "way": Column("Ranking and guard"),
            "cells": Column(
                "Reached in", "", None, "cells whose whole 95% interval is at the factor or above"
            ),
            "best": Column("Largest gain", "x", None, "geometric mean of three paired seeds"),
            "where": Column("Where"),
        },
        "In which regime each factor is reached",
    )
    maps = [
        Chart(
            heat_map(part.filter(pl.col("metric") == MEAN)),
            "A burst of 2,000" if arrivals == BURST else f"{arrivals} of what the engine sustains",
            "gain in mean latency per token over FCFS, geometric mean of three paired seeds",
        )
        for (arrivals,), part in frame.partition_by("arrivals", as_dict=True, maintain_order=True).items()
    ]
    lead = (
        "The bundled trace's 4,095 requests, drawn anew for each seed, on the default engine with fewer slots or KV "
        "blocks; rates are shares of what each engine sustains. Scores are free here. PARS ranks by the shipped "
        "predictor's real scores; tau 0.96, the paper's best, is emulated."
    )
    return Section("In which regime the factors arise", [table, Columns(maps)], lead, "regimes")


def named(regimes: pl.DataFrame) -> pl.DataFrame:
    """With `engine`, `way` (ranking and guard) and `arrivals` in words."""
    words = [
        {
            "engine": f"{row['seats']:,} slots, {row['blocks']:,} blocks",
            "way": f"{ranking(row['policy'])}, {guarded(row['guard_s'])}",
            "arrivals": BURST if row["share"] is None else f"Poisson, {row['share']:.0%}",
        }
        for row in regimes.iter_rows(named=True)
    ]
    return regimes.hstack(pl.DataFrame(words))


def ranking(policy: str) -> str:
    """A policy's name on this page, where it is said that rankings of a tau are emulated."""
    tau = parse_policy(policy).emulated_tau
    return NAMES.get(policy, policy) if tau is None else f"tau {tau:g}"


def guarded(guard_s: float | None) -> str:
    """A starvation threshold in words."""
    return "no guard" if guard_s is None else f"guard {guard_s:g} s"


def reached(frame: pl.DataFrame) -> pl.DataFrame:
    """claim, way, cells (found of all), best gain, where: of every factor and way."""
    rows = []
    for claim, metric, burst, factor in FACTORS:
        own = frame.filter(pl.col("metric") == metric, pl.col("share").is_null() == burst)
        for (way,), cells in own.partition_by("way", as_dict=True, maintain_order=True).items():
            there = cells.filter(pl.col("low") >= factor).sort("gain", descending=True)
            rows.append(
                {
                    "claim": claim,
                    "way": way,
                    "cells": f"{there.height} of {cells.height}",
                    "best": cells["gain"].max(),
                    "where": places(there),
                }
            )
    return pl.DataFrame(rows)


def places(cells: pl.DataFrame) -> str:
    """The cells in words, the largest gain first."""
    words = [
        f"{row['arrivals']}, {row['engine']}: {told(row)}"
        for row in cells.head(MOST_NAMED).iter_rows(named=True)
    ]
    more = cells.height - MOST_NAMED
    return "; ".join(words + ([f"and {more} more"] if more > 0 else [])) or "nowhere"


def told(row: dict[str, float]) -> str:
    """A gain with its interval."""
    return f"{times(row['gain'])} [{figure(row['low'])}, {figure(row['high'])}]"


def summary(regimes: pl.DataFrame, metric: str, burst: bool, factor: float) -> str:
    """Where a factor is reached, for the table of claims; empty if nowhere."""
    frame = named(regimes).filter(
        pl.col("metric") == metric, pl.col("share").is_null() == burst, pl.col("low") >= factor
    )
    parts = []
    for guarded in (True, False):
        some = frame.filter(pl.col("guard_s").is_not_null() == guarded)
        real = some.filter(pl.col("policy") == "pars")
        how = "with the guard" if guarded else "without a guard"
        for cells, whose in ((real, "PARS"), (some, "a ranking near the true order")):
            if cells.height:
                best = cells.sort("gain", descending=True).row(0, named=True)
                parts.append(
                    f"{whose} {how}, at most {times(best['gain'])} ({best['engine']}, {best['arrivals']})"
                )
                break
    return "; ".join(parts)


def heat_map(frame: pl.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Cells of `gain` over way x engine, in the order of the frame."""
    frame = frame.with_columns(
        log_gain=pl.col("gain").log(2),
        text=pl.col("gain").map_elements(
            lambda g: f"{g:.1f}x" if g < 10 else f"{g:.0f}x", return_dtype=pl.String
        ),
    )
    ways, engines = (frame[c].unique(maintain_order=True).to_list() for c in ("way", "engine"))
    x = alt.X(
        "way:N", title=None, sort=ways, axis=alt.Axis(labelAngle=-30, labelLimit=170, labelOverlap=False)
    )
    y = alt.Y("engine:N", title=None, sort=engines, axis=alt.Axis(labelLimit=150))
    scale = alt.Scale(scheme="blueorange", domain=[-4, 4], domainMid=0, reverse=True, clamp=True)
    tips = ["engine:N", "way:N"] + [alt.Tooltip(f"{c}:Q", format=".3~g") for c in ("gain", "low", "high")]
    base = alt.Chart(frame).encode(x=x, y=y)
    cells = base.mark_rect().encode(color=alt.Color("log_gain:Q", scale=scale, legend=None), tooltip=tips)
    dark = alt.condition("abs(datum.log_gain) > 2.4", alt.value("white"), alt.value("#222"))
    words = base.mark_text(fontSize=12).encode(text="text:N", color=dark)
    return alt.layer(cells, words).properties(width="container", height=34 * len(engines))

"""Which settings to recommend: candidates put to the test on fresh seeds, at the load and 20% below and above it.

A candidate may win only if at each of the three loads it is at most `WORSE` times vLLM's defaults in the objective and
its p99 TTFT lies within the tail bound (each with its whole interval, or on every single seed), and it meets the
constraints with their interval. Of those that are not shown to be behind the best, the simplest is chosen: none that
needs a predictor where another does as well, then the fewest changed settings, then the most head-room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from parsim.metrics import METRICS
from parsim.stats import Interval
from parsim.sweep.choose import EQUAL, Constraint, changes
from parsim.sweep.configuration import POLICY_COLUMNS, configuration_columns, engine_of
from parsim.sweep.evidence import Runs, fresh_seeds
from parsim.sweep.plan import Grid
from parsim.sweep.point import Point
from parsim.sweep.results import Results, paired

MARGINS = (0.8, 1.0, 1.2)
"""Shares of the load at which candidates are judged."""
LOOKS = (6, 12)
"""Fresh seeds of the first and of the second look."""
LEVEL = 1 - 0.05 / len(LOOKS)
WORSE = 1.05
TAIL = "p99_ttft_ms"
NOMINATED = 3
"""Candidates by their mean on the grid's seeds, beside vLLM's defaults and the best that needs no predictor."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Tried:
    """What the trial found of one candidate.

    Attributes:
        row: its settings and the mean of each metric at the load, over the fresh seeds.
        gains: load -> objective of vLLM's defaults over the candidate's (turned round where higher is better).
        tails: load -> p99 TTFT over that of vLLM's defaults.
        broken: what keeps it from being recommended, in words; empty where nothing does.
        predictor: whether it needs one.
        changes: settings changed from vLLM's defaults.
    """

    row: Row
    gains: dict[float, Interval]
    tails: dict[float, Interval]
    broken: tuple[str, ...]
    predictor: bool
    changes: int


@dataclass(frozen=True)
class Trial:
    """The candidates, vLLM's defaults first, the chosen one, and why it."""

    tried: tuple[Tried, ...]
    chosen: int
    reason: str

    def facts(self) -> dict[str, Any]:
        """For `facts.json`."""
        rows = [
            {
                "row": {k: v for k, v in t.row.items() if k not in METRICS},
                "gains": [[load, *t.gains[load]] for load in t.gains],
                "tails": [[load, *t.tails[load]] for load in t.tails],
                "broken": list(t.broken),
                "predictor": t.predictor,
            }
            for t in self.tried
        ]
        return {"tried": rows, "chosen": self.chosen, "reason": self.reason}


def nominees(
    results: Results, objective: str, constraints: Sequence[Constraint], tail_bound: float | None, load: float
) -> list[Row]:
    """vLLM's defaults (FCFS with the sweep's first engine), then the candidates by the grid, guards and search."""
    columns = configuration_columns(results.results)
    own = results.base["fcfs", load].row(0, named=True)
    studies = ["main", "seeds", "guard", "search"]
    cure = pl.lit(value=not results.select("search").is_empty()) & (pl.col("study") == "cures")
    rows = results.results.filter(
        pl.col("study").is_in(studies) | (cure & (pl.col("num_gpu_blocks") == own["num_gpu_blocks"])),
        pl.col("load") == load,
        pl.col("runs_in_vllm"),
    ).unique([*columns, "seed"], maintain_order=True)
    same = [pl.col(name).eq_missing(pl.lit(own[name])) for name in columns]
    base = rows.filter(*same).select("seed", base=objective, base_tail=TAIL)
    sign = 1 if METRICS[objective].better == "lower" else -1
    gain = sign * (pl.col("base") / pl.col(objective)).log()
    table = (
        rows.join(base, on="seed")
        .group_by(columns, maintain_order=True)
        .agg(
            gain.mean().alias("gain"),
            (pl.col(TAIL) / pl.col("base_tail")).log().mean().exp().alias("tail"),
            *[pl.col(c.metric).mean() for c in constraints],
        )
        .filter(pl.col("gain").is_finite())
        .with_columns(
            excess=pl.sum_horizontal([c.excess().clip(lower_bound=0) for c in constraints] or [pl.lit(0.0)])
        )
    )
    table = table.sort("excess", -pl.col("gain"), maintain_order=True)
    engine = [c for c in columns if c not in POLICY_COLUMNS]
    plain = table.filter(
        *[pl.col(c).eq_missing(pl.lit(own[c])) for c in engine], pl.col("policy") != own["policy"]
    )
    if tail_bound is not None:
        table = table.filter((pl.col("tail") <= tail_bound) | pl.col("tail").is_nan())
    predictors = [n for n, p in results.facts["policies"].items() if p["has_predictor"]]
    free = table.filter(~pl.col("policy").is_in(predictors))
    best = ((table, NOMINATED), (free, 1), (plain, 1))
    first = rows.filter(*same).select(columns).head(1)
    chosen = pl.concat([first, *(part.select(columns).head(count) for part, count in best)])
    return chosen.unique(maintain_order=True).to_dicts()


def points(grid: Grid, rows: Sequence[Row], loads: Sequence[float], seeds: Sequence[int]) -> list[Point]:
    """The candidates at every load on every seed."""
    own = grid.engine
    return [
        Point(
            replace(
                grid.base[row["policy"]],
                starvation_threshold_s=row["starvation_threshold_s"],
                victim=row["victim"],
            ),
            engine_of(row, own),
            load,
            seed,
        )
        for row in rows
        for load in loads
        for seed in seeds
    ]


def hold(
    run: Callable[[Sequence[Point], str, str], Runs],
    table: Callable[[Runs], Results],
    grid: Grid,
    rows: Sequence[Row],
    load: float,
    known: Sequence[int],
    objective: str,
    constraints: Sequence[Constraint],
    tail_bound: float | None,
    burst: bool,
) -> tuple[Runs, Trial]:
    """Put the candidates to the test; a second look with more seeds where the first does not settle it."""
    loads = [load] if burst else [float(f"{share * load:.6g}") for share in MARGINS]
    runs: Runs = []
    seeds: list[int] = []
    for count in LOOKS:
        fresh = fresh_seeds([*known, *seeds], count - len(seeds))
        seeds += fresh
        runs += run(points(grid, rows, loads, fresh), "trial", "the candidates, on fresh seeds")
        results = table(runs)
        tried = [
            judge_one(results, rows, i, loads, load, objective, constraints, tail_bound)
            for i in range(len(rows))
        ]
        trial, settled = settle(results, tried, loads, load, objective)
        if settled or len(rows) == 1:
            break
    return runs, trial


def of(results: Results, row: Row, load: float) -> pl.DataFrame:
    """The fresh-seed rows of a candidate."""
    columns = configuration_columns(results.results)
    same = [pl.col(name).eq_missing(pl.lit(row[name])) for name in columns]
    return results.select("trial", load=load).filter(*same).sort("seed")


def judge_one(
    results: Results,
    rows: Sequence[Row],
    index: int,
    loads: Sequence[float],
    load: float,
    objective: str,
    constraints: Sequence[Constraint],
    tail_bound: float | None,
) -> Tried:
    """One candidate against vLLM's defaults."""
    row = rows[index]
    own = {at: of(results, row, at) for at in loads}
    base = {at: of(results, rows[0], at) for at in loads}
    gains = {at: advantage(results, own[at], base[at], objective) for at in loads}
    tails = {at: results.ratio(own[at], base[at], TAIL, LEVEL) for at in loads}
    broken = []
    if index:
        for at in loads:
            rate = f"load {at:g}"
            turned = METRICS[objective].better == "lower"
            each = (
                paired(base[at], own[at], objective)[1] if turned else paired(own[at], base[at], objective)[1]
            )
            if not (gains[at].low >= 1 / WORSE or each.min() >= 1 / WORSE):
                broken.append(f"may be {1 / gains[at].low:.2f}x vLLM's defaults in {objective} at {rate}")
            each = paired(own[at], base[at], TAIL)[1]
            if tail_bound is not None and tails[at].high > tail_bound and each.max() > tail_bound:
                broken.append(f"p99 TTFT may be {tails[at].high:.2f}x that of vLLM's defaults at {rate}")
    for c in constraints:
        found = results.interval(own[load], c.metric, LEVEL)
        end = found.high if c.sense == "<=" else found.low
        if not (end <= c.bound if c.sense == "<=" else end >= c.bound):
            broken.append(f"{c}: {found.value:.4g} (95% {found.low:.4g} to {found.high:.4g})")
    means = own[load].select(pl.col([m for m in METRICS if m in own[load].columns]).mean()).row(0, named=True)
    predictor = bool(results.facts["policies"][row["policy"]]["has_predictor"])
    return Tried({**row, **means}, gains, tails, tuple(broken), predictor, changes(row, rows[0]))


def advantage(results: Results, own: pl.DataFrame, base: pl.DataFrame, objective: str) -> Interval:
    """The default's objective over the candidate's; the other way round where higher is better."""
    if METRICS[objective].better == "lower":
        return results.ratio(base, own, objective, LEVEL)
    return results.ratio(own, base, objective, LEVEL)


def settle(
    results: Results, tried: Sequence[Tried], loads: Sequence[float], load: float, objective: str
) -> tuple[Trial, bool]:
    """The chosen candidate, and whether more seeds could not change it for a reason that shows now."""
    free = [
        i for i, t in enumerate(tried) if not any(":" in b for b in t.broken) and (i == 0 or not t.broken)
    ]
    if not free:  # no candidate meets the constraints: the nearest to doing so
        free = list(range(len(tried)))
    best = max(free, key=lambda i: _mean(tried[i]))
    behind = {i: _behind(results, tried[i], tried[best], loads, objective) for i in free}
    equal = [i for i in free if i == best or not behind[i].low > 1 + EQUAL]
    chosen = min(
        equal,
        key=lambda i: (tried[i].predictor, tried[i].changes, -tried[i].gains[loads[-1]].value),
    )
    unsure = chosen != best and behind[chosen].value > 1 + EQUAL
    blocked = any(_mean(t) > _mean(tried[chosen]) * (1 + EQUAL) and t.broken for t in tried)
    if chosen == best:
        reason = "the best of the candidates"
    else:
        reason = "no other candidate is shown to be better by more than 2%, and this one changes least"
    return Trial(tuple(tried), chosen, reason), not unsure and not blocked


def _mean(t: Tried) -> float:
    product = 1.0
    for found in t.gains.values():
        product *= found.value
    return product ** (1 / len(t.gains)) if product == product else 0.0


def _behind(results: Results, t: Tried, best: Tried, loads: Sequence[float], objective: str) -> Interval:
    """How far a candidate is behind the best over the three loads, paired by seed."""

    def over(of_row: Row) -> pl.DataFrame:
        parts = [of(results, of_row, at).select("seed", objective) for at in loads]
        return pl.concat(parts).group_by("seed").agg(pl.col(objective).log().mean().exp())

    return advantage(results, over(best.row), over(t.row), objective)

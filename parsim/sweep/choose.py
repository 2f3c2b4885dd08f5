"""Which settings to run: the best configuration under the user's constraints, and the Pareto front."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from parsim.defaults import DEFAULT_STARVATION_THRESHOLD_S
from parsim.errors import UserError, nearest
from parsim.metrics import METRICS
from parsim.sweep.configuration import ENGINE_COLUMNS, configuration_columns

EQUAL = 0.02
STUDIES = ("guard", "search", "plainer")
"""Studies that try settings beyond the grid, on some of its seeds."""
_CONSTRAINT = re.compile(r"\s*([A-Za-z0-9_]+)\s*(<=|>=)\s*([-+0-9.eE]+)\s*")


@dataclass(frozen=True)
class Constraint:
    """`metric <= bound` or `metric >= bound`, in the metric's unit."""

    metric: str
    sense: Literal["<=", ">="]
    bound: float

    def excess(self) -> pl.Expr:
        """How far a row violates the constraint, as a share of the bound; <= 0 where it holds."""
        over = pl.col(self.metric) - self.bound if self.sense == "<=" else self.bound - pl.col(self.metric)
        return over / max(abs(self.bound), 1e-12)

    def __str__(self) -> str:
        return f"{self.metric} {self.sense} {self.bound:g}"


def check_metric(name: str, where: str) -> str:
    """`name` if it is a metric.

    Raises:
        UserError: there is no such metric; the nearest name is given.
    """
    if name not in METRICS:
        raise UserError(f"{where} {name!r}: no such metric{nearest(name, METRICS)}")
    return name


def parse_constraint(text: str) -> Constraint:
    """A constraint from `METRIC<=NUMBER` or `METRIC>=NUMBER`.

    Raises:
        UserError: not of that form, or no such metric (with the nearest name).
    """
    match = _CONSTRAINT.fullmatch(text)
    try:
        bound = float(match[3]) if match else float("nan")
    except ValueError:
        bound = float("nan")
    if match is None or bound != bound:
        raise UserError(
            f"constraint {text!r}: write METRIC<=NUMBER or METRIC>=NUMBER, such as p99_ttft_ms<=2000"
        )
    sense: Literal["<=", ">="] = "<=" if match[2] == "<=" else ">="
    return Constraint(check_metric(match[1], "constraint"), sense, bound)


@dataclass(frozen=True)
class Decision:
    """The chosen configuration.

    Attributes:
        row: its settings and the mean of each metric over the replicates.
        feasible: whether it meets every constraint; if not, it is the nearest to doing so.
        violated: the constraints that it breaks, with the value reached, in words.
        candidates: all configurations, with `feasible`, `excess` and `front` (whether on the Pareto front).
    """

    row: dict[str, object]
    feasible: bool
    violated: tuple[str, ...]
    candidates: pl.DataFrame


def decide(results: pl.DataFrame, objective: str, constraints: Sequence[Constraint], load: float) -> Decision:
    """The best runnable configuration at `load` among the studies main, guard, search and plainer, on the seeds that
    these share.

    The objective is compared as the mean over seeds. Among those within `EQUAL` of the best, the one that changes the
    fewest settings is chosen: a difference that no operator can see is not worth a setting.
    """
    better_low = METRICS[objective].better == "lower"
    columns = configuration_columns(results)
    metrics = sorted(
        {objective, *(c.metric for c in constraints), "mean_per_token_latency_ms", "p99_e2el_ms"}
    )
    rows = results.filter(
        pl.col("study").is_in(["main", *STUDIES]), pl.col("load") == load, pl.col("runs_in_vllm")
    )
    few = rows.filter(pl.col("study").is_in(STUDIES))["seed"].unique()
    means = (
        rows.filter(pl.col("seed").is_in(few.implode()) if len(few) else True)
        .unique([*columns, "seed"], maintain_order=True)
        .group_by(columns, maintain_order=True)
        .agg(pl.len().alias("replicates"), *[pl.col(m).mean() for m in METRICS if m in results.columns])
    )
    means = means.filter(pl.col("replicates") == pl.col("replicates").max(), pl.col(objective).is_finite())
    if means.is_empty():
        raise UserError(f"no policy that an engine can run was measured at load {load:g}; add fcfs or pars")
    excess = [c.excess().clip(lower_bound=0.0).fill_nan(float("inf")) for c in constraints]
    total = pl.sum_horizontal(excess) if excess else pl.lit(0.0)
    ranked = means.with_columns(excess=total, changes=_changes(results)).with_columns(
        feasible=pl.col("excess") <= 0
    )
    least = pl.col("excess").min() + 1e-9
    best = (
        pl.col(objective).filter(pl.col("excess") <= least).min()
        if better_low
        else pl.col(objective).filter(pl.col("excess") <= least).max()
    )
    close = (pl.col(objective) / best - 1).abs() <= EQUAL
    ranked = ranked.with_columns(close=close & (pl.col("excess") <= least)).sort(
        pl.col("close").not_(),
        "excess",
        pl.when("close").then("changes").otherwise(0),
        pl.col(objective) if better_low else -pl.col(objective),
        maintain_order=True,
    )
    ranked = ranked.with_columns(front=_front(ranked, objective, "p99_e2el_ms"))
    row = ranked.row(0, named=True)
    violated = tuple(
        f"{c}: {row[c.metric]:.4g} at best"
        for c in constraints
        if not (row[c.metric] <= c.bound if c.sense == "<=" else row[c.metric] >= c.bound)
    )
    return Decision(
        row,
        not violated,
        violated,
        ranked.select(*columns, *metrics, "feasible", "excess", "front"),
    )


def _changes(results: pl.DataFrame) -> pl.Expr:
    """How many settings a row changes from the sweep's own under FCFS; a ranked policy's default guard is free."""
    own = results.filter(pl.col("study") == "main").row(0, named=True)
    same = [pl.col(c) == own[c] for c in ENGINE_COLUMNS if c in results.columns]
    guard = pl.col("starvation_threshold_s")
    defaults = [
        pl.col("policy") == "fcfs",
        pl.col("victim") == "last",
        guard.is_null() | (guard == DEFAULT_STARVATION_THRESHOLD_S),
        *same,
    ]
    return pl.sum_horizontal(~e for e in defaults)


def changed_settings(row: dict[str, Any], own: dict[str, Any]) -> list[str]:
    """The settings that differ from vLLM's defaults `own`: victim, guard, the engine's, policy. A ranked policy's
    default guard comes with it."""
    found = ["victim"] if row["victim"] != own["victim"] else []
    if row["starvation_threshold_s"] not in (
        None,
        own["starvation_threshold_s"],
        DEFAULT_STARVATION_THRESHOLD_S,
    ) or (row["starvation_threshold_s"] is None and row["policy"] != own["policy"]):
        found.append("starvation_threshold_s")
    return found + [name for name in (*ENGINE_COLUMNS, "policy") if name in row and row[name] != own[name]]


def _front(frame: pl.DataFrame, objective: str, second: str) -> pl.Series:
    """Whether no other row is at least as good in both metrics and better in one."""
    signs = [1.0 if METRICS[m].better == "lower" else -1.0 for m in (objective, second)]
    a, b = (frame[m].to_numpy() * s for m, s in zip((objective, second), signs, strict=True))
    dominated = [bool(((a <= x) & (b <= y) & ((a < x) | (b < y))).any()) for x, y in zip(a, b, strict=True)]
    return ~pl.Series("front", dominated, dtype=pl.Boolean)

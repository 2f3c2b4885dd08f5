"""A sweep's tables: results, groups, requests and steps. The report reads only these."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from parsim.errors import UserError
from parsim.files import replacing
from parsim.stats import Floats, Interval, grouped_interval, spread_interval, t_interval
from parsim.sweep.configuration import engine_columns
from parsim.sweep.measure import Outcome
from parsim.sweep.point import Point
from parsim.traces.draw.resampling import PARTS

Ints = npt.NDArray[np.int64]

SCORING = (
    "mean_scoring_delay_s",
    "admitted_unscored",
    "never_scored",
    "scoring_s_per_request",
    "scorer_core_share",
)
"""What scoring cost and delayed, where it was charged (`parsim.simulation.Run.metadata`)."""

BASE_STUDIES = ("main", "clairvoyant", "seeds", "onset")
"""Studies whose rows run the grid's first settings: the grid, the best clairvoyant order, seeds added at the load of
the verdict, loads added to find where ordering begins to matter."""

STRAYS = 3.0
"""A recorded trace this many standard deviations off its parts drawn again is no sample like them."""

_NULLABLE = {
    **dict.fromkeys(
        ("emulated_tau", "reached_tau", "starvation_threshold_s", "dial_tau", *SCORING), pl.Float64
    ),
    "dial": pl.String,
    "trace_requests": pl.Int64,
}
_TABLES = ("results", "groups", "requests", "series")


@dataclass(frozen=True)
class Results:
    """The tables of one sweep.

    Attributes:
        results: one row a study x point x replicate with all metrics.
        groups: latencies by output-length decile and client; `row` points into `results`.
        requests: every request at the load of the verdict, per policy, first seed.
        series: KV use and queue over time, per policy, first seed.
        facts: what the page says of trace, engine and choices.
    """

    results: pl.DataFrame
    groups: pl.DataFrame
    requests: pl.DataFrame
    series: pl.DataFrame
    facts: dict[str, Any] = field(default_factory=dict)

    def select(self, study: str, **conditions: object) -> pl.DataFrame:
        """The rows of a study where every named column has the given value (None: is null)."""
        frame = self.results.filter(pl.col("study") == study)
        for name, value in conditions.items():
            frame = frame.filter(pl.col(name).is_null() if value is None else pl.col(name) == value)
        return frame

    @cached_property
    def base(self) -> dict[tuple[str, float], pl.DataFrame]:
        """(policy, load) -> replicates by seed of the grid's first settings: engine, guard and victim."""
        main = self.results.filter(pl.col("study").is_in(BASE_STUDIES))
        settings = ("starvation_threshold_s", "victim", "changed")
        first = [pl.col(name).eq_missing(pl.col(name).first().over("policy")) for name in settings]
        parts = (
            main.filter(*first)
            .unique(["policy", "load", "seed"], maintain_order=True)
            .sort("seed", maintain_order=True)
            .partition_by("policy", "load", as_dict=True)
        )
        return {(str(policy), float(load)): rows for (policy, load), rows in parts.items()}

    @cached_property
    def loads(self) -> list[float]:
        """The loads that FCFS was run at with the grid's first settings, ascending."""
        return sorted(load for policy, load in self.base if policy == "fcfs")

    def interval(self, rows: pl.DataFrame, metric: str, level: float = 0.95) -> Interval:
        """The metric over the replicates of one configuration."""
        rows = rows.sort("seed")
        return self._over(rows["seed"].to_numpy(), rows[metric].to_numpy(), level)

    def ratio(self, rows: pl.DataFrame, other: pl.DataFrame, metric: str, level: float = 0.95) -> Interval:
        """metric(rows) / metric(other) over the seeds that both have."""
        return self._over(*paired(rows, other, metric), level)

    def _over(self, seeds: Ints, values: Floats, level: float) -> Interval:
        """Over seeds. Of a recorded trace each seed but the lowest draws the requests of one part of it again: the mean
        over parts, unless the trace itself strays from all of them (its own pattern matters then): it is the centre,
        and the interval as wide as they stray from it."""
        if len(values) == 0:
            return Interval(math.nan, math.nan, math.nan)
        recorded = seeds == self.facts["seeds"][0]
        again = values[~recorded]
        if self.facts["trace"]["redrawn"]:
            return t_interval(values, level)
        if len(again) < 2:
            return Interval(float(values[0]), math.nan, math.nan)
        found = grouped_interval(again, seeds[~recorded] % PARTS, level)
        if not recorded.any() or not np.all(values > 0):
            return found
        strays = abs(math.log(values[recorded][0] / found.value))
        if strays <= STRAYS * float(np.std(np.log(again), ddof=1)) + 1e-9:
            return found
        return spread_interval(float(values[recorded][0]), again, level)

    def write(self, folder: Path) -> None:
        """Write every table as Parquet and the facts as JSON, each whole or not at all."""
        for name in _TABLES:
            with replacing(folder / f"{name}.parquet") as path:
                getattr(self, name).write_parquet(path)
        with replacing(folder / "facts.json") as path:
            path.write_text(json.dumps(self.facts, indent=1), encoding="utf-8")


def paired(rows: pl.DataFrame, other: pl.DataFrame, metric: str) -> tuple[Ints, Floats]:
    """Seeds that both have, ascending, and metric(rows) / metric(other) of each."""
    pairs = rows.select("seed", metric).join(other.select("seed", metric), on="seed").sort("seed")
    return pairs["seed"].to_numpy(), pairs[metric].to_numpy() / pairs[f"{metric}_right"].to_numpy()


def read_results(folder: Path) -> Results:
    """The tables of a finished sweep.

    Raises:
        UserError: `folder` holds no finished sweep.
    """
    try:
        tables = {name: pl.read_parquet(folder / f"{name}.parquet") for name in _TABLES}
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        missing = Path(str(error.filename or "results.parquet")).name
        raise UserError(
            f"{folder}: no finished sweep here ({missing} is missing); run parsim sweep"
        ) from error
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise UserError(f"{folder}: the results cannot be read ({error}); run the sweep again") from error
    if (
        not isinstance(facts, dict)
        or not {"focus_load", "level", "capacity"} <= {*facts}
        or not {"study", "runs_in_vllm", "trace_requests", *SCORING} <= {*tables["results"].columns}
    ):
        raise UserError(f"{folder}: the results are damaged or of another version; run the sweep again")
    return Results(**tables, facts=facts)


def collect(runs: Sequence[tuple[str, Point, Outcome]], rate_rps: float, facts: dict[str, Any]) -> Results:
    """Tables of the runs (study, point, outcome), in their order. `rate_rps`: arrivals a second at load 1."""
    rows = [_row(i, study, point, outcome, rate_rps) for i, (study, point, outcome) in enumerate(runs)]
    return Results(
        results=pl.DataFrame(rows, infer_schema_length=None, schema_overrides=_NULLABLE),
        groups=_groups(runs),
        requests=_frames(runs, "requests"),
        series=_frames(runs, "series"),
        facts=facts,
    )


def _row(index: int, study: str, point: Point, outcome: Outcome, rate_rps: float) -> dict[str, Any]:
    policy, engine = point.policy, point.engine
    return {
        "row": index,
        "study": study,
        "policy": policy.name,
        "label": policy.label,
        "runs_in_vllm": policy.runs_in_vllm,
        "emulated_tau": policy.emulated_tau,
        "reached_tau": _reached(outcome.facts, policy.name),
        "starvation_threshold_s": policy.starvation_threshold_s,
        "victim": policy.victim,
        "dial": point.dial.where if point.dial else None,
        "dial_tau": point.dial.tau if point.dial else None,
        "load": point.load,
        "rate_rps": point.load * rate_rps,
        "seed": point.seed,
        "trace_requests": point.requests,
        "changed": json.dumps(point.changed, sort_keys=True),
        **engine_columns(engine),
        **{name: outcome.facts.get(name) for name in SCORING},
        **{name: float(value) for name, value in outcome.metrics.items()},
    }


def _reached(facts: dict[str, Any], policy: str) -> float | None:
    value = facts.get("reached_tau")
    if isinstance(value, dict):
        value = value.get(policy)
    return None if value is None else float(value)


def _groups(runs: Sequence[tuple[str, Point, Outcome]]) -> pl.DataFrame:
    rows = [
        {"row": i, **group}
        for i, (study, _, outcome) in enumerate(runs)
        if study == "main"
        for group in outcome.groups
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def _frames(runs: Iterable[tuple[str, Point, Outcome]], name: str) -> pl.DataFrame:
    frames = [
        frame.with_columns(policy=pl.lit(point.policy.name))
        for study, point, outcome in runs
        if study == "timeline" and (frame := getattr(outcome, name)) is not None
    ]
    return pl.concat(frames) if frames else pl.DataFrame({"policy": []}, schema={"policy": pl.String})

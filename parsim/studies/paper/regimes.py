"""In which regime does a factor arise? Slots x KV blocks x arrivals x guard x ranking quality, three seeds each.

The bundled trace's requests (recorded Llama-3.1-8B-Instruct lengths) on the default engine with fewer slots or blocks.
Rates are shares of what each engine sustains by itself, so that "115%" is the same pressure everywhere. Scores are free
here: with their cost charged every factor is the same or smaller.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from parsim.defaults import DEFAULT_ENGINE, DEFAULT_STARVATION_THRESHOLD_S
from parsim.engine import EngineConfig, load_engine
from parsim.progress import progress_bar
from parsim.scheduler.policy import Policy, parse_policy
from parsim.stats import t_interval
from parsim.sweep.capacity import AT_ONCE, stationary
from parsim.sweep.execute import ExecutorName, Runner
from parsim.sweep.measure import Outcome
from parsim.sweep.point import Point
from parsim.sweep.spec import TraceSource
from parsim.sweep.store import Store
from parsim.sweep.workload import Workload, load_trace

if TYPE_CHECKING:
    from rich.console import Console

METRICS = ("mean_per_token_latency_ms", "p90_per_token_latency_ms")


@dataclass(frozen=True)
class Axes:
    """What is varied.

    Attributes:
        seats: `max_num_seqs`.
        blocks: `num_gpu_blocks`; None: the default engine's.
        shares: Poisson rates as shares of what the engine sustains.
        burst: requests of the burst.
        guards: starvation thresholds in seconds; None: no guard.
        rankings: policies from the shipped predictor to the true lengths.
        seeds: each draws the requests anew.
        requests: of the Poisson traces; None: as many as the bundled trace has.
    """

    seats: tuple[int, ...] = (16, 64, 256)
    blocks: tuple[int | None, ...] = (1000, None)
    shares: tuple[float, ...] = (0.9, 1.15, 1.6)
    burst: int = 2000
    guards: tuple[float | None, ...] = (DEFAULT_STARVATION_THRESHOLD_S, None)
    rankings: tuple[str, ...] = ("pars", "emulated(tau=0.96)", "oracle")
    seeds: tuple[int, ...] = (0, 1, 2)
    requests: int | None = None


@dataclass(frozen=True)
class Cell:
    """One engine under one kind of arrivals; `share` is None for the burst."""

    engine: EngineConfig
    share: float | None
    load: float


def run_regimes(
    folder: Path,
    console: Console,
    executor: ExecutorName = "local",
    jobs: int | None = None,
    fresh: bool = False,
    axes: Axes | None = None,
) -> pl.DataFrame:
    """Run every cell that `folder` does not hold yet; one row a cell, guard, ranking and metric.

    Columns: seats, blocks, share (null: burst), guard_s (null: none), policy, metric, and gain, low, high: the metric
    under FCFS over that under the policy, geometric mean of the paired seeds with its 95% interval.
    """
    axes = axes or Axes()
    store = Store(folder / "points")
    if fresh:
        store.clear()
    steady = _workload(folder / "steady", axes.seeds, axes.requests)
    burst = _workload(folder / "burst", axes.seeds, axes.burst)
    with progress_bar(console) as bar:
        poisson = Runner(steady, store, {}, None, executor, jobs, bar)
        at_once = Runner(burst, store, {}, None, executor, jobs, bar)
        cells = list(_cells(axes, poisson, steady.rate_rps))
        rows: list[dict[str, object]] = []
        for runner, some in (
            (poisson, [c for c in cells if c.share is not None]),
            (at_once, [c for c in cells if c.share is None]),
        ):
            points = [point for cell in some for point in _points(cell, axes)]
            outcomes = iter(runner.run(points, "where the factors arise"))
            runs = [(point, next(outcomes)) for point in points]
            each = len(runs) // max(len(some), 1)
            for i, cell in enumerate(some):
                rows += _rows(cell, runs[i * each : (i + 1) * each], axes)
    return pl.DataFrame(rows, infer_schema_length=None)


def _workload(folder: Path, seeds: tuple[int, ...], requests: int | None) -> Workload:
    source = TraceSource(bundled=True, requests=requests)
    return Workload(source, folder, seeds, load_trace(source, seeds[0]), load_engine(DEFAULT_ENGINE))


def _cells(axes: Axes, runner: Runner, rate_rps: float) -> Iterator[Cell]:
    """Every engine with its arrivals, once it is known what it sustains."""
    own = load_engine(DEFAULT_ENGINE)
    engines = [
        own.model_copy(update={"max_num_seqs": seats, "num_gpu_blocks": blocks or own.num_gpu_blocks})
        for seats, blocks in itertools.product(axes.seats, axes.blocks)
    ]
    for engine in engines:
        sustained_rps = stationary(runner, runner.workload, engine).rps
        for share in axes.shares:
            yield Cell(engine, share, share * sustained_rps / rate_rps)
        yield Cell(engine, None, AT_ONCE)


def _policies(axes: Axes) -> Iterator[Policy]:
    yield parse_policy("fcfs")
    for name, guard in itertools.product(axes.rankings, axes.guards):
        yield replace(parse_policy(name), starvation_threshold_s=guard)


def _points(cell: Cell, axes: Axes) -> Iterator[Point]:
    for policy, seed in itertools.product(_policies(axes), axes.seeds):
        yield Point(policy, cell.engine, cell.load, seed)


def _rows(cell: Cell, runs: list[tuple[Point, Outcome]], axes: Axes) -> Iterator[dict[str, object]]:
    """Gains of every policy of a cell over FCFS, paired by seed."""
    own = [runs[i : i + len(axes.seeds)] for i in range(0, len(runs), len(axes.seeds))]
    fcfs = own[0]
    for group, metric in itertools.product(own[1:], METRICS):
        policy = group[0][0].policy
        ratios = [a.metrics[metric] / b.metrics[metric] for (_, a), (_, b) in zip(fcfs, group, strict=True)]
        interval = t_interval(ratios)
        yield {
            "seats": cell.engine.max_num_seqs,
            "blocks": cell.engine.num_gpu_blocks,
            "share": cell.share,
            "guard_s": policy.starvation_threshold_s,
            "policy": policy.name,
            "metric": metric,
            "gain": interval.value,
            "low": interval.low,
            "high": interval.high,
        }

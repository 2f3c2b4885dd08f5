"""Which limit of the engine binds: what requests wait for when too many come."""

from __future__ import annotations

from typing import Literal

import polars as pl

from parsim.engine import EngineConfig
from parsim.scheduler.policy import Policy
from parsim.sweep.execute import Runner
from parsim.sweep.plan import Grid
from parsim.sweep.point import Point

Limit = Literal["max_num_seqs", "num_gpu_blocks", "max_num_batched_tokens"]
MOST = 0.5
"""A limit binds if it is reached in at least this share of the time in which requests wait."""
FULL = 0.9
"""KV memory counts as full from this share on: a waiting request needs more than one block."""


def binding(runner: Runner, grid: Grid, load: float, seed: int) -> Limit:
    """What FCFS runs out of at `load`, the highest of a sweep."""
    point = Point(Policy("fcfs", "fcfs"), grid.engine, load, seed, keep="steps")
    outcome = runner.run([point], "which limit binds")[0]
    assert outcome.series is not None, "a point that keeps its steps has a series"
    return short_of(outcome.series, grid.engine)


def short_of(series: pl.DataFrame, engine: EngineConfig) -> Limit:
    """What is reached while requests wait: the slots, else the KV blocks, else the token budget of a step.

    Where nothing ever waits: the one of slots and blocks that comes nearest to its end.

    Args:
        series: running, waiting and kv_usage over time (`parsim.sweep.measure.series`).
        engine: whose limits they are held against.
    """
    waiting = series.filter(pl.col("waiting") > 0)
    rows = series if waiting.is_empty() else waiting
    seats, blocks = rows["running"] / engine.max_num_seqs, rows["kv_usage"]
    if waiting.is_empty():
        return "max_num_seqs" if float(seats.max() or 0) >= float(blocks.max() or 0) else "num_gpu_blocks"  # type: ignore[arg-type]
    if float((seats >= 1).mean() or 0) >= MOST:  # type: ignore[arg-type]
        return "max_num_seqs"
    return "num_gpu_blocks" if float((blocks >= FULL).mean() or 0) >= MOST else "max_num_batched_tokens"  # type: ignore[arg-type]

"""What would help besides the order: more seats, memory or budget, or another replica, each simulated under FCFS."""

from __future__ import annotations

from collections.abc import Sequence

from parsim.engine import EngineConfig
from parsim.scheduler.policy import POLICIES
from parsim.stats import Interval
from parsim.sweep.judge import HEADLINE, base_rows, level
from parsim.sweep.plan import Grid
from parsim.sweep.point import Point
from parsim.sweep.results import Results

SETTABLE = ("max_num_seqs", "max_num_batched_tokens")
"""Cures that are a setting; more memory or another replica is hardware."""


def changed(engine: EngineConfig) -> dict[str, dict[str, int]]:
    """Limit -> the fields that raise it."""
    seqs, tokens = 4 * engine.max_num_seqs, 4 * engine.max_num_batched_tokens
    return {
        "max_num_seqs": {
            "max_num_seqs": seqs,
            "max_num_batched_tokens": max(seqs, engine.max_num_batched_tokens),
        },
        "num_gpu_blocks": {"num_gpu_blocks": 2 * engine.num_gpu_blocks},
        "max_num_batched_tokens": {"max_num_batched_tokens": tokens},
    }


def points(grid: Grid, load: float, requests: int, seeds: Sequence[int]) -> list[Point]:
    """FCFS as it is, with each limit raised, and as one of two replicas: half the `requests` of the trace at half the
    rate, in the same time."""
    engine, fcfs = grid.engine, POLICIES["fcfs"]
    raised = [
        Point(fcfs, engine.model_copy(update=fields), load, seed, dict(fields))
        for fields in changed(engine).values()
        for seed in seeds
    ]
    own = [Point(fcfs, engine, load, seed) for seed in seeds]
    replica = [Point(fcfs, engine, load / 2, seed, requests=max(requests // 2, 2)) for seed in seeds]
    return own + raised + replica


def gains(results: Results) -> dict[str, Interval]:
    """Cure -> FCFS's mean latency per token over that with the cure, paired; empty where none was tried."""
    load, rows = results.facts["focus_load"], results.select("cures")
    if rows.is_empty():
        return {}
    own = base_rows(results, "fcfs", load)
    engine = EngineConfig.model_validate(results.facts["engine"])
    found = {}
    for name, fields in changed(engine).items():
        same = rows
        for field in ("max_num_seqs", "max_num_batched_tokens", "num_gpu_blocks"):
            same = same.filter(same[field] == fields.get(field, getattr(engine, field)))
        found[name] = results.ratio(
            own, same.filter(same["trace_requests"].is_null()), HEADLINE, level(results, load)
        )
    half = rows.filter(rows["trace_requests"].is_not_null())
    found["replica"] = results.ratio(own, half, HEADLINE, level(results, load))
    return found

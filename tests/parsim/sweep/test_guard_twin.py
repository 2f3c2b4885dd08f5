"""A guard that promoted nobody is no guard: such a run is not made twice, and what is kept is what it would give."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from parsim.scheduler.policy import POLICIES
from parsim.sweep import execute
from parsim.sweep.execute import Runner
from parsim.sweep.measure import measure
from parsim.sweep.plan import resolve
from parsim.sweep.point import Point
from parsim.sweep.spec import TraceSource, parse_spec
from parsim.sweep.store import Store
from parsim.sweep.workload import Workload, load_trace


@pytest.mark.parametrize("guard", [1e-3, 1e6])
def test_an_unguarded_order_is_run_only_where_the_guard_acted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: float
) -> None:
    rng = random.Random(guard)
    lengths = {"prompt_mean": rng.randint(20, 60), "output_mean": rng.randint(20, 60)}
    source = TraceSource(
        synthesize={"arrivals": f"poisson(rate={rng.randint(40, 90)})", "lengths": lengths, "n": 80}
    )
    first = load_trace(source, 0)
    engine = resolve(parse_spec({"set": {"max_num_seqs": 4}, "policies": ["fcfs"]}, "s"), first).engine
    runner = Runner(Workload(source, tmp_path, (0,), first, engine), Store(tmp_path / "points"), {}, jobs=1)
    own = replace(POLICIES["oracle"], starvation_threshold_s=guard)
    free = replace(own, name="oracle, unguarded", starvation_threshold_s=None)
    ran = []
    real = execute.Job.run
    monkeypatch.setattr(execute.Job, "run", lambda job: (ran.append(job), real(job))[1])
    points = [Point(free, engine, 1.0, 0), Point(own, engine, 1.0, 0)]
    found = runner.run(points, "both")
    assert len(ran) == (1 if guard > 1 else 2)
    for outcome, point in zip(found, points, strict=True):
        told = measure(first, point, {}, None)
        assert outcome.metrics == pytest.approx(told.metrics, nan_ok=True)
        assert outcome.groups == told.groups
    assert (found[1].metrics["promoted"] > 0) == (guard < 1)

"""The map of regimes: the gains are those of runs made here, and a second call runs nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from parsim.defaults import DEFAULT_ENGINE
from parsim.engine import load_engine
from parsim.metrics import summarize
from parsim.scheduler.policy import parse_policy
from parsim.simulation import simulate
from parsim.studies.paper.regime_page import MEAN, P90, named, reached, summary
from parsim.studies.paper.regimes import Axes, run_regimes
from parsim.sweep import execute
from parsim.sweep.capacity import AT_ONCE
from parsim.sweep.spec import TraceSource
from parsim.sweep.workload import load_trace

AXES = Axes(
    seats=(4,), blocks=(2000,), shares=(1.5,), burst=30, guards=(1.0, None), rankings=("pars",), seeds=(0, 1),
    requests=60,
)  # fmt: skip


def test_gains_are_those_of_paired_runs_and_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Console(quiet=True)
    frame = run_regimes(tmp_path, quiet, jobs=1, axes=AXES)
    assert frame.height == 2 * 2 * 2  # arrivals x guards x metrics
    engine = load_engine(DEFAULT_ENGINE, {"max_num_seqs": 4, "num_gpu_blocks": 2000})
    ratios = []
    for seed in AXES.seeds:
        trace = load_trace(TraceSource(bundled=True, requests=30), seed)
        runs = [
            simulate(trace, engine, policy, load=AT_ONCE)
            for policy in (parse_policy("fcfs"), replace(parse_policy("pars"), starvation_threshold_s=1.0))
        ]
        fcfs, pars = (summarize(run.requests)[MEAN] for run in runs)
        ratios.append(fcfs / pars)
    row = frame.filter(pl.col("share").is_null(), pl.col("guard_s") == 1.0, pl.col("metric") == MEAN)
    assert row["gain"][0] == pytest.approx(math.sqrt(ratios[0] * ratios[1]))

    def refuse(job: execute.Job) -> None:
        raise AssertionError(f"{job.key} was run again")

    monkeypatch.setattr(execute.Job, "run", refuse)
    assert run_regimes(tmp_path, quiet, jobs=1, axes=AXES).equals(frame)


def test_a_factor_is_reached_only_with_its_whole_interval() -> None:
    cell = {"seats": 16, "blocks": 1000, "share": 1.15, "guard_s": None, "policy": "pars", "high": 40.0}
    frame = pl.DataFrame(
        [
            {**cell, "metric": MEAN, "gain": 20.0, "low": 16.0},
            {**cell, "metric": MEAN, "gain": 19.0, "low": 12.0, "seats": 64},
            {**cell, "metric": P90, "gain": 12.4, "low": 12.0},
        ],
        schema_overrides={"guard_s": pl.Float64},
    )
    rows = {row["claim"][:4]: row for row in reached(named(frame)).iter_rows(named=True)}
    assert rows["mean"]["cells"] == "1 of 2"
    assert rows["mean"]["where"].startswith("Poisson, 115%, 16 slots, 1,000 blocks: 20x")
    assert (rows["p90 "]["cells"], rows["p90 "]["where"]) == ("0 of 1", "nowhere")
    assert "PARS without a guard" in summary(frame, MEAN, False, 15.7)
    assert summary(frame, P90, False, 12.3) == ""

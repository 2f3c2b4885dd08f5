"""What may be recommended: rules of the trial, on runs whose outcomes the tests make up."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from parsim.metrics import METRICS
from parsim.report.build import page
from parsim.stats import Interval
from parsim.sweep import nominate, plan, trial
from parsim.sweep.evidence import Runs
from parsim.sweep.measure import Outcome
from parsim.sweep.point import Point
from parsim.sweep.results import Results, collect
from parsim.sweep.run import run_sweep
from parsim.sweep.search import guards, values
from parsim.sweep.spec import parse_spec
from parsim.traces import synthesize

MEAN, TAIL = "mean_per_token_latency_ms", "p99_ttft_ms"
Latency = Callable[[Point], tuple[float, float]]
SEQS = 64


@pytest.fixture(scope="module")
def grid() -> plan.Grid:
    trace = synthesize("poisson(rate=5)", {"prompt_mean": 20, "output_mean": 20}, n=20, seed=0)
    fields = {
        "set": {"max_num_seqs": SEQS, "max_num_batched_tokens": 512},
        "policies": ["fcfs", "prompt-sjf", "pars"],
        "emulate": {"pars": 0.5},
    }
    return plan.resolve(parse_spec(fields, "s"), trace)


def row(grid: plan.Grid, policy: str, guard: float | None = None, **engine: Any) -> nominate.Row:
    """A candidate as the tables tell it."""
    own = grid.base[policy]
    guard = own.starvation_threshold_s if guard is None else guard
    point = Point(own, grid.engine.model_copy(update=engine), 1.0, 0)
    told = collect([("main", point, outcome(1, 1))], 1.0, {}).results.row(0, named=True)
    columns = nominate.configuration_columns(collect([("main", point, outcome(1, 1))], 1.0, {}).results)
    return {**{name: told[name] for name in columns}, "starvation_threshold_s": guard}


def outcome(mean: float, tail: float) -> Outcome:
    return Outcome({**dict.fromkeys(METRICS, 1.0), MEAN: mean, TAIL: tail}, {}, [])


def held(
    grid: plan.Grid, rows: Sequence[nominate.Row], latency: Latency, most: int = 24, **asked: Any
) -> tuple[trial.Trial, list[Point]]:
    """The trial over made-up latencies, and the points that it ran."""
    ran: list[Point] = []

    def run(points: Sequence[Point], study: str, title: str) -> Runs:
        ran.extend(points)
        return [(study, point, outcome(*latency(point))) for point in points]

    def table(runs: Runs) -> Results:
        facts = {
            "seeds": [0, 1, 2],
            "trace": {"redrawn": True},
            "policies": {name: {"has_predictor": p.has_predictor} for name, p in grid.base.items()},
        }
        return collect(runs, 1.0, facts)

    about = trial.Asked(
        **{
            "objective": MEAN,
            "constraints": (),
            "tail_bound": 1.2,
            "load": 1.0,
            "burst": False,
            "known": [0, 1, 2],
            "most_seeds": most,
            **asked,
        }
    )
    return trial.hold(run, table, grid, rows, about)[1], ran


def noisy(gain: dict[Any, float], spread: float, salt: int, tail: dict[Any, float] | None = None) -> Latency:
    """Latencies of a policy (or policy and seats): FCFS's over its gain, each run off by a factor of its own."""

    def latency(point: Point) -> tuple[float, float]:
        key: Any = (point.policy.name, point.engine.max_num_seqs)
        own = gain.get(key, gain.get(point.policy.name, 1.0))
        rng = np.random.default_rng(
            [salt, point.seed, round(point.load * 100), len(str(key)), hash(own) % 97]
        )
        off = 0.0 if key == ("fcfs", SEQS) else rng.normal(0, spread)
        return 100 / own * float(np.exp(off)), 100 * (tail or {}).get(point.policy.name, 1.0)

    return latency


@pytest.mark.parametrize("salt", range(4))
def test_a_gain_that_is_not_shown_is_not_recommended(grid: plan.Grid, salt: int) -> None:
    gain = random.Random(salt).uniform(1.05, 1.3)
    found, ran = held(grid, [row(grid, "fcfs"), row(grid, "pars")], noisy({"pars": gain}, 3.0, salt))
    interval = found.tried[1].gains[1.0]
    assert interval.low < 1 < interval.high, "the drawn noise hides the gain"
    assert found.chosen == 0
    assert found.tried[1].broken == (trial.NOT_SHOWN,)
    if interval.value > 1.02:
        assert len({p.seed for p in ran if p.policy.name == "pars"}) == 24, "the budget was used to decide"


@pytest.mark.parametrize("salt", range(4))
def test_a_clear_gain_is_recommended_after_the_first_look(grid: plan.Grid, salt: int) -> None:
    gain = random.Random(salt).uniform(1.3, 3)
    found, ran = held(grid, [row(grid, "fcfs"), row(grid, "pars")], noisy({"pars": gain}, 0.02, salt))
    assert found.chosen == 1
    assert found.tried[1].gains[1.0].low > 1
    assert {p.seed for p in ran} == {3, 4, 5, 6, 7, 8}, "fresh seeds, and no more than needed"
    assert set(found.tried[1].gains) == {0.8, 1.0, 1.2}, "judged around the load too"


def test_more_seeds_decide_what_few_leave_open(grid: plan.Grid) -> None:
    rows = [row(grid, "fcfs"), row(grid, "pars")]
    for salt in range(20):
        found, ran = held(grid, rows, noisy({"pars": 1.5}, 0.4, salt))
        seeds = {p.seed for p in ran if p.policy.name == "pars" and p.load == 1}
        if found.chosen == 1 and len(seeds) > 6:
            return
    pytest.fail("no draw needed a second look")


def test_what_is_worse_at_a_load_nearby_is_not_recommended(grid: plan.Grid) -> None:
    def latency(point: Point) -> tuple[float, float]:
        better = point.policy.name == "pars" and point.load == 1
        worse = point.policy.name == "pars" and point.load > 1
        return (100 + point.seed) * (0.5 if better else 1.3 if worse else 1), 100

    found, _ = held(grid, [row(grid, "fcfs"), row(grid, "pars")], latency)
    assert found.chosen == 0
    assert "at load 1.2" in found.tried[1].broken[0]


def test_a_longer_tail_is_not_recommended_and_the_next_one_is(grid: plan.Grid) -> None:
    rows = [row(grid, "fcfs"), row(grid, "pars"), row(grid, "prompt-sjf")]
    gains = noisy({"pars": 2.0, "prompt-sjf": 1.4}, 0.02, 1, {"pars": 1.5})
    assert held(grid, rows, gains)[0].chosen == 2
    assert held(grid, rows, gains, tail_bound=None)[0].chosen == 1


def test_of_equals_the_one_without_a_predictor_then_with_fewest_changes(grid: plan.Grid) -> None:
    wide = row(grid, "fcfs", max_num_seqs=4 * SEQS)
    both = row(grid, "prompt-sjf", 30.0, max_num_seqs=4 * SEQS)
    rows = [row(grid, "fcfs"), row(grid, "pars"), both, wide]
    equal = {"pars": 1.505, "prompt-sjf": 1.5, ("fcfs", 4 * SEQS): 1.495}
    found, _ = held(grid, rows, noisy(equal, 0.001, 3))
    assert found.tried[found.chosen].row["policy"] == "fcfs"
    assert [t.changes for t in found.tried] == [0, 1, 3, 1]
    assert "needs no predictor" in found.reason
    found, _ = held(grid, rows, noisy({**equal, "pars": 1.8}, 0.001, 3))
    assert found.tried[found.chosen].row["policy"] == "pars", "shown to be better by more than 2%"


def test_a_gain_of_a_percent_is_not_worth_a_change(grid: plan.Grid) -> None:
    found, ran = held(grid, [row(grid, "fcfs"), row(grid, "pars")], noisy({"pars": 1.01}, 1e-4, 5))
    assert found.tried[1].gains[1.0].low > 1
    assert found.chosen == 0
    assert len(ran) == 12, "settled at the first look"


def test_settings_that_do_not_matter_are_taken_back(grid: plan.Grid) -> None:
    own = row(grid, "fcfs")
    many = {**row(grid, "pars", 30.0, max_num_seqs=256, max_num_batched_tokens=2048), "victim": "worst"}

    def mean(candidate: nominate.Row) -> tuple[float, float]:
        return (100 if candidate["max_num_seqs"] == SEQS else 80), 100

    found = nominate.plainer([own, many], mean, MEAN)[1]
    assert found == row(grid, "pars", max_num_seqs=256, max_num_batched_tokens=512)

    def guarded(candidate: nominate.Row) -> tuple[float, float]:
        return 100, (100 if candidate["starvation_threshold_s"] == 30 else 130)

    found = nominate.plainer([own, many], guarded, MEAN)[1]
    assert found == row(grid, "pars", 30.0)


def test_the_search_tries_values_that_people_type(grid: plan.Grid) -> None:
    assert values(grid) == {
        "max_num_seqs": [16, 32, 64, 128, 256],
        "max_num_batched_tokens": [128, 256, 512, 1024, 2048, 4096],
    }
    assert set(guards(grid)) == {5, 15, 30, 60, 120, 300, None}


def test_the_first_page_recommends_nothing(tmp_path: Path) -> None:
    fields = {
        "trace": {"bundled": True, "requests": 60},
        "set": {"max_num_seqs": 4},
        "policies": ["fcfs", "pars"],
        "loads": [1],
        "focus_load": 1,
        "seeds": [0, 1],
        "most_seeds": 2,
        "studies": [],
    }
    pages: list[str] = []
    spec = parse_spec(fields, "s")
    results = run_sweep(spec, tmp_path, Console(quiet=True), jobs=1, publish=lambda r: pages.append(page(r)))
    (first,) = pages
    assert "Nothing is recommended yet: candidates are being tried" in first
    assert "Recommended" not in first.replace("Nothing is recommended", "")
    assert "--scheduler-cls" not in first
    assert "Recommended" in page(results)
    chosen = results.facts["trial"]["tried"][results.facts["trial"]["chosen"]]
    if results.facts["trial"]["chosen"]:
        assert Interval(*chosen["gains"][0][1:]).low > 0
        assert next(g for g in chosen["gains"] if g[0] == 1)[2] > 1

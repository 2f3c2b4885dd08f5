"""Constraints, the choice and the front, on small tables worked out by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from parsim.errors import UserError
from parsim.metrics import METRICS
from parsim.sweep.choose import check_metric, decide, parse_constraint

MEAN, TTFT = "mean_per_token_latency_ms", "p99_ttft_ms"


def row(policy: str, mean: float, ttft: float, tail: float = 100.0, **more: Any) -> dict[str, Any]:
    base = {
        "study": "main",
        "load": 1.0,
        "seed": 0,
        "policy": policy,
        "label": policy,
        "runs_in_vllm": policy != "oracle",
        "starvation_threshold_s": None if policy == "fcfs" else 120.0,
        "victim": "last",
        "num_gpu_blocks": 100,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        **{name: 1.0 for name in METRICS},
    }
    return {**base, MEAN: mean, TTFT: ttft, "p99_e2el_ms": tail, **more}


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema_overrides={"starvation_threshold_s": pl.Float64})


def test_the_best_that_an_engine_can_run_is_chosen() -> None:
    found = decide(table(row("fcfs", 9, 1), row("pars", 3, 1), row("oracle", 1, 1)), MEAN, [], 1.0)
    assert found.row["policy"] == "pars"
    assert found.feasible


def test_a_constraint_rules_out_the_best() -> None:
    rows = table(row("fcfs", 9, 10), row("pars", 3, 50), row("listwise", 4, 20))
    found = decide(rows, MEAN, [parse_constraint("p99_ttft_ms<=20")], 1.0)
    assert found.row["policy"] == "listwise"
    assert found.candidates["feasible"].to_list() == [True, True, False]


def test_when_none_is_feasible_the_nearest_is_told() -> None:
    rows = table(row("fcfs", 9, 30), row("pars", 3, 50))
    found = decide(rows, MEAN, [parse_constraint("p99_ttft_ms <= 20")], 1.0)
    assert not found.feasible
    assert found.row["policy"] == "fcfs"
    assert found.violated == ("p99_ttft_ms <= 20: 30 at best",)


def test_a_higher_is_better_metric_is_maximised() -> None:
    rows = table(row("fcfs", 9, 1, output_throughput=5.0), row("pars", 9, 1, output_throughput=7.0))
    assert decide(rows, "output_throughput", [], 1.0).row["policy"] == "pars"


def test_equal_within_two_percent_goes_to_the_fewest_changes() -> None:
    rows = table(
        row("fcfs", 100, 1), row("pars", 99, 1), row("pars", 98.5, 1, max_num_seqs=16, study="search")
    )
    assert decide(rows, MEAN, [], 1.0).row["policy"] == "fcfs"
    rows = table(
        row("fcfs", 120, 1), row("pars", 99, 1), row("pars", 98.5, 1, max_num_seqs=16, study="search")
    )
    assert decide(rows, MEAN, [], 1.0).row["max_num_seqs"] == 8


def test_only_configurations_with_every_seed_compete() -> None:
    rows = table(row("fcfs", 9, 1), row("fcfs", 9, 1, seed=1), row("pars", 1, 1))
    assert decide(rows, MEAN, [], 1.0).row["policy"] == "fcfs"


def test_the_front_is_what_nothing_dominates() -> None:
    rows = table(
        row("fcfs", 9, 1, 10), row("pars", 3, 1, 50), row("listwise", 4, 1, 60), row("pointwise", 5, 1, 20)
    )
    found = decide(rows, MEAN, [], 1.0).candidates
    assert dict(zip(found["policy"], found["front"], strict=True)) == {
        "fcfs": True,
        "pars": True,
        "listwise": False,
        "pointwise": True,
    }


@pytest.mark.parametrize(
    "text", ["p99_ttft_ms<2", "p99_ttft_ms<=x", "p99_ttft_ms", "<=3", "p99_ttft_ms<=nan"]
)
def test_a_constraint_of_another_form_is_told(text: str) -> None:
    with pytest.raises(UserError, match="METRIC<=NUMBER"):
        parse_constraint(text)


def test_an_unknown_metric_is_told_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="did you mean 'p99_ttft_ms'"):
        parse_constraint("p99_tfft_ms<=3")
    with pytest.raises(UserError, match="did you mean 'mean_per_token_latency_ms'"):
        check_metric("mean_token_latency_ms", "--objective")

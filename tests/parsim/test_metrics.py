"""Metrics against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.metrics import LATENCIES, METRICS, summarize


def results(rows: list[dict[str, object]]) -> pl.DataFrame:
    plain = {
        "request_id": "r", "prompt_tokens": 10, "cached_tokens": 0, "preemptions": 0,
        "recomputed_tokens": 0, "promoted": False, "rejected": None,
    }  # fmt: skip
    return pl.DataFrame([plain | row for row in rows], infer_schema_length=None)


TWO = results(
    [
        {
            "arrival_s": 1.0,
            "first_scheduled_s": 1.5,
            "first_token_s": 2.0,
            "finish_s": 6.0,
            "output_tokens": 5,
        },
        {
            "arrival_s": 3.0,
            "first_scheduled_s": 3.0,
            "first_token_s": 4.0,
            "finish_s": 4.0,
            "output_tokens": 1,
        },
    ]
)


NO_GAPS = pl.DataFrame(schema={"gap_s": pl.Float64, "tokens": pl.Int64})


def test_latencies_of_two_requests() -> None:
    """TTFT 1 and 1 s; E2E 5 and 1 s; TPOT 4/4 s, and none for one token; per token 5/5 and 1/1 s."""
    values = summarize(TWO)
    assert values["mean_ttft_ms"] == 1000
    assert values["mean_e2el_ms"] == 3000
    assert values["median_e2el_ms"] == 3000
    assert values["p90_e2el_ms"] == pytest.approx(1000 + 0.9 * 4000)
    assert values["mean_tpot_ms"] == 1000
    assert values["mean_per_token_latency_ms"] == 1000
    assert values["mean_queue_ms"] == 250
    assert values["max_wait_s"] == 0.5


def test_throughput_runs_from_the_first_arrival_to_the_last_finish() -> None:
    values = summarize(TWO)
    assert values["duration_s"] == 5.0
    assert values["request_throughput"] == pytest.approx(2 / 5)
    assert values["output_throughput"] == pytest.approx(6 / 5)
    assert values["total_token_throughput"] == pytest.approx(26 / 5)


def test_jain_fairness_of_slowdowns() -> None:
    """Slowdowns 5/4.5 and 1: (sum)^2 / (2 * sum of squares)."""
    slow = 5 / 4.5
    assert summarize(TWO)["jain_fairness_slowdown"] == pytest.approx((slow + 1) ** 2 / (2 * (slow**2 + 1)))


def test_inter_token_latency_is_over_all_gaps_and_not_over_requests() -> None:
    """Four gaps of 10 ms and one of 110 ms: mean 30 ms, p90 at place 3.6 of 0..4, as vLLM's benchmark has it."""
    gaps = pl.DataFrame({"gap_s": [0.01, 0.11], "tokens": [4, 1]})
    values = summarize(TWO, gaps=gaps)
    assert values["mean_itl_ms"] == pytest.approx(30)
    assert values["median_itl_ms"] == pytest.approx(10)
    assert values["p90_itl_ms"] == pytest.approx(10 + 0.6 * 100)
    assert values["p99_itl_ms"] == pytest.approx(10 + 0.96 * 100)
    assert "mean_itl_ms" not in summarize(TWO)


@given(st.lists(st.tuples(st.floats(0.001, 10), st.integers(1, 5)), max_size=12, unique_by=lambda x: x[0]))
def test_weighted_quantiles_are_those_of_the_repeated_values(rows: list[tuple[float, int]]) -> None:
    gaps = pl.DataFrame(rows, schema={"gap_s": pl.Float64, "tokens": pl.Int64}, orient="row").sort("gap_s")
    values = summarize(TWO, gaps=gaps)
    every = [gap_s * 1e3 for gap_s, tokens in rows for _ in range(tokens)]
    for name, q in (("median", 50), ("p90", 90), ("p95", 95), ("p99", 99)):
        found = values[f"{name}_itl_ms"]
        assert math.isnan(found) if not every else found == pytest.approx(np.percentile(every, q))
    assert (
        math.isnan(values["mean_itl_ms"])
        if not every
        else values["mean_itl_ms"] == pytest.approx(np.mean(every))
    )


def test_goodput_counts_requests_within_every_limit() -> None:
    assert summarize(TWO, {"ttft": 1000.0})["request_goodput"] == pytest.approx(2 / 5)
    assert summarize(TWO, {"ttft": 1000.0, "e2el": 2000.0})["request_goodput"] == pytest.approx(1 / 5)
    assert "request_goodput" not in summarize(TWO)


def test_rejected_requests_count_only_as_rejected() -> None:
    refused = results(
        [{"arrival_s": 9.0, "first_scheduled_s": None, "first_token_s": None, "finish_s": None, "output_tokens": 9,
          "rejected": "too long"}]
    )  # fmt: skip
    values = summarize(pl.concat([TWO, refused], how="vertical_relaxed"))
    assert (values["completed"], values["rejected"], values["duration_s"]) == (2, 1, 5.0)
    alone = summarize(
        refused.cast({"finish_s": pl.Float64, "first_token_s": pl.Float64, "first_scheduled_s": pl.Float64})
    )
    assert alone["completed"] == 0
    assert math.isnan(alone["mean_e2el_ms"])


def test_an_unknown_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="itl"):
        summarize(TWO, {"itl": 5.0})


def test_every_metric_has_a_formula_and_every_value_a_metric() -> None:
    assert set(summarize(TWO, {"ttft": 1.0}, 0.5, NO_GAPS)) == set(METRICS)
    assert all(metric.formula and metric.unit for metric in METRICS.values())
    assert f"mean_{next(iter(LATENCIES))}_ms" in METRICS

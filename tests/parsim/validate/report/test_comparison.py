"""The comparison of model and reality: errors, order, speed-ups, parts, verdicts."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from parsim.validate.report.comparison import Pair, errors, order, parts, speedups
from parsim.validate.report.page import verdict


def frame(scale: float = 1.0, n: int = 200, seed: int = 0) -> pl.DataFrame:
    """Requests whose every latency is proportional to `scale`."""
    rng = np.random.default_rng(seed)
    arrival = np.arange(n) * 0.1
    queue, prefill = rng.uniform(0.1, 1.0, n), rng.uniform(0.05, 0.1, n)
    output = rng.integers(2, 50, n)
    decode = output * 0.02
    return pl.DataFrame(
        {
            "request_id": [str(i) for i in range(n)],
            "arrival_s": arrival,
            "first_scheduled_s": arrival + scale * queue,
            "first_token_s": arrival + scale * (queue + prefill),
            "finish_s": arrival + scale * (queue + prefill + decode),
            "prompt_tokens": [10] * n,
            "output_tokens": output,
        }
    )


def test_error_of_a_model_that_is_ten_percent_slow() -> None:
    table = errors([Pair("fcfs", "fcfs", [frame()], [frame(1.1)])])
    latency = table.filter(pl.col("unit") == "ms")
    assert latency["error"].to_list() == pytest.approx([0.1] * latency.height)
    # proportional in every request, so whatever the bootstrap draws the ratio is the same
    assert latency["low"].to_list() == pytest.approx([0.1] * latency.height)
    row = table.row(by_predicate=pl.col("metric") == "mean_ttft_ms", named=True)
    real = frame()
    assert row["real"] == pytest.approx(1e3 * (real["first_token_s"] - real["arrival_s"]).to_numpy().mean())


def test_bootstrap_interval_covers_an_error_that_varies_over_the_run() -> None:
    noisy = frame().with_columns(
        finish_s=pl.col("finish_s") + pl.when(pl.int_range(pl.len()) > 150).then(0.5).otherwise(0)
    )
    row = errors([Pair("fcfs", "fcfs", [frame()], [noisy])]).row(
        by_predicate=pl.col("metric") == "mean_e2el_ms", named=True
    )
    assert row["low"] < row["error"] < row["high"]
    assert row["high"] - row["low"] > 0.02


def test_repeats_give_a_student_interval() -> None:
    table = errors([Pair("fcfs", "fcfs", [frame(s) for s in (0.9, 1.0, 1.1)], [frame(1.0)] * 3)])
    row = table.row(by_predicate=pl.col("metric") == "mean_e2el_ms", named=True)
    assert row["repeats"] == 3
    assert row["error"] == pytest.approx(0.0, abs=1e-9)
    # half-width of log ratios +-0.1 over 3 repeats: 4.303 * 0.1004 / sqrt(3) = 0.249
    assert np.log1p(row["high"]) - np.log1p(row["low"]) == pytest.approx(2 * 0.249, abs=0.01)


def test_speedups_and_order() -> None:
    pairs = [
        Pair("fcfs", "fcfs", [frame(3.0)] * 2, [frame(3.3)] * 2),
        Pair("pars", "pars", [frame(1.5)] * 2, [frame(1.5)] * 2),
        Pair("oracle", "oracle", [frame(1.0)] * 2, [frame(1.2)] * 2),
    ]
    gains = speedups(pairs)
    assert gains["real"].to_list() == pytest.approx([1.0, 2.0, 3.0])
    assert gains["model"].to_list() == pytest.approx([1.0, 2.2, 2.75])
    assert gains["error"].to_list() == pytest.approx([0.0, 0.1, 2.75 / 3 - 1])
    ranking = order(pairs)
    assert ranking.real == ("oracle", "pars", "fcfs") == ranking.model
    assert ranking.same


@pytest.mark.parametrize(("gap", "same"), [(1.02, True), (1.10, False)])
def test_order_counts_near_ties_as_equal(gap: float, same: bool) -> None:
    pairs = [
        Pair("pars", "pars", [frame(1.0)], [frame(1.01)]),
        Pair("listwise", "listwise", [frame(gap)], [frame(1.0)]),
    ]
    ranking = order(pairs, margin=0.03)
    assert ranking.real == ("pars", "listwise")
    assert ranking.model == ("listwise", "pars")
    assert ranking.same is same


def test_order_counts_as_equal_what_the_repeats_cannot_tell_apart() -> None:
    noisy = [Pair("pars", "pars", [frame(s) for s in (0.8, 1.1, 1.1)], [frame(1.2)] * 3)]
    noisy.append(Pair("listwise", "listwise", [frame(s) for s in (1.2, 1.0, 1.2)], [frame(1.0)] * 3))
    assert order(noisy).same
    steady = [
        Pair(p.policy, p.label, [frame(s)] * 3, p.model) for p, s in zip(noisy, (1.0, 1.13), strict=True)
    ]
    assert not order(steady).same


def test_parts_add_up_and_cope_without_the_engine_clock() -> None:
    table = parts([Pair("fcfs", "fcfs", [frame()], [frame(1.1)])])
    assert table["part"].to_list() == ["queue", "prefill", "decode"]
    real = frame()
    assert table["real_s"].sum() == pytest.approx((real["finish_s"] - real["arrival_s"]).to_numpy().mean())
    blind = frame().with_columns(first_scheduled_s=pl.lit(None, pl.Float64))
    assert parts([Pair("fcfs", "fcfs", [blind], [frame()])])["part"].to_list() == ["first token", "decode"]


@pytest.mark.parametrize(
    ("scales", "kind"), [((1.05, 1.05), "good"), ((1.3, 1.3), "mixed"), ((0.4, 2.0), "poor")]
)
def test_verdict_says_what_the_numbers_say(scales: tuple[float, float], kind: str) -> None:
    pairs = [
        Pair("fcfs", "fcfs", [frame(2.0)], [frame(2.0 * scales[0])]),
        Pair("oracle", "oracle", [frame(1.0)], [frame(1.0 * scales[1])]),
    ]
    table = errors(pairs)
    said = verdict(table, speedups(pairs), order(pairs), "command")
    assert said.kind == kind
    headline = table.filter(pl.col("metric").is_in(["mean_per_token_latency_ms", "mean_ttft_ms"]))
    worst = headline["error"].abs().max()
    assert f"{worst:.1%}" in said.sentences[0].replace("+", "").replace("-", "")

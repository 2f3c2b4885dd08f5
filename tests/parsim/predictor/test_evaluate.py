from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from parsim.predictor.quality.evaluate import (
    calibration,
    noise_ceiling,
    pair_accuracy,
    tau_by_group,
    tau_interval,
)
from parsim.stats import tau_b


def test_constants_leave_tau_undefined() -> None:
    found = tau_interval(np.arange(5.0), np.full(5, 7.0))
    assert str(found) == "undefined"


def test_a_ceiling_of_samples_that_are_all_the_same_is_undefined() -> None:
    found = noise_ceiling(pl.DataFrame({"prompt": ["a", "b", "c"], "samples": [[7.0, 7.0]] * 3}))
    assert found is not None
    assert math.isnan(found.expected) and str(found.sample) == "undefined"


def test_interval_covers_the_true_tau() -> None:
    """Bivariate normal with correlation r has tau = 2/pi asin(r); 95% intervals must cover it most of the time."""
    truth, hits = 2 / math.pi * math.asin(0.7), 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=300)
        y = 0.7 * x + math.sqrt(1 - 0.49) * rng.normal(size=300)
        found = tau_interval(x, np.exp(y), resamples=200)
        hits += found.low <= truth <= found.high
    assert hits >= 16


def test_noise_ceiling_finds_the_predictor_that_knows_the_expectation() -> None:
    rng = np.random.default_rng(1)
    expected = rng.normal(size=4000)
    samples = np.exp(expected[:, None] + 0.8 * rng.normal(size=(4000, 2)))
    found = noise_ceiling(pl.DataFrame({"prompt": list(map(str, range(4000))), "samples": samples.tolist()}))
    assert found is not None
    assert found.sample.value == pytest.approx(2 / math.pi * math.asin(1 / 1.64), abs=0.02)
    assert found.expected == pytest.approx(tau_b(expected, samples[:, 0]), abs=0.02)
    assert noise_ceiling(pl.DataFrame({"prompt": ["a"], "samples": [[3.0]]})) is None


def test_pair_accuracy_by_gap() -> None:
    """Scores are right but for rows 0 and 1, whose lengths (10, 11) are within 20% of each other."""
    scores, lengths = np.array([2.0, 1, 3, 4]), np.array([10.0, 11, 100, 1000])
    table = {row["gap"]: row for row in pair_accuracy(scores, lengths).to_dicts()}
    assert table["0% to 20%"]["accuracy"] == 0.0
    assert table["80% to 100%"]["accuracy"] == 1.0
    assert table["all"]["accuracy"] == pytest.approx(5 / 6, abs=0.01)


def test_equal_scores_count_half() -> None:
    assert pair_accuracy(np.zeros(50), np.arange(1.0, 51))["accuracy"][-1] == 0.5


def test_calibration_parts_are_in_the_order_of_the_score() -> None:
    table = calibration(np.arange(100.0), np.arange(1.0, 101))
    assert table["prompts"].to_list() == [10] * 10
    assert table["median"].to_list() == [5.5 + 10 * part for part in range(10)]


def test_groups() -> None:
    scores, lengths = np.array([1.0, 2, 3, 1, 2]), np.array([1.0, 2, 3, 2, 1])
    table = tau_by_group(scores, lengths, ["up"] * 3 + ["down"] * 2)
    assert table["group"].to_list() == ["up", "down"]
    assert table["tau_b"].to_list() == pytest.approx([1.0, -1.0])

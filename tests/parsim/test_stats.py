"""Intervals against values worked out elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest

from parsim.stats import (
    Interval,
    block_indices,
    block_length,
    bootstrap,
    percentile_interval,
    t_interval,
    tau_b,
)


def test_tau_b_by_hand() -> None:
    """Scores 1 2 3 4 on lengths 1 3 2 4: 5 concordant, 1 discordant of 6: 4 / 6."""
    assert tau_b(np.arange(4.0), np.array([1.0, 3, 2, 4])) == pytest.approx(4 / 6)


def test_tau_b_corrects_ties() -> None:
    """Lengths 1 1 2: 2 concordant, 0 discordant, one tie: 2 / sqrt(3 * 2)."""
    assert tau_b(np.array([1.0, 2, 3]), np.array([1.0, 1, 2])) == pytest.approx(2 / math.sqrt(6))


def test_constants_leave_tau_undefined() -> None:
    assert math.isnan(tau_b(np.arange(5.0), np.full(5, 7.0)))
    assert math.isnan(tau_b(np.full(5, 7.0), np.arange(5.0)))
    assert math.isnan(tau_b([1.0], [2.0]))


def test_an_interval_is_written_as_far_as_it_is_known() -> None:
    assert f"{Interval(0.12345, 0.1, 0.2):.3f}" == "0.123 [0.100, 0.200]"
    assert str(Interval(1234.0, math.nan, math.nan)) == "1.23e+03"
    assert str(Interval(math.nan, math.nan, math.nan)) == "undefined"


def test_the_bootstrap_of_a_mean_has_the_width_of_theory() -> None:
    """Of n independent values the mean's standard error is s / sqrt(n); a 95% interval spans 2 * 1.96 of them."""
    x = np.random.default_rng(3).standard_normal(400)
    found = bootstrap(lambda rows: float(x[rows].mean()), len(x), 2000, seed=1)
    assert found.value == pytest.approx(x.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * x.std() / 20, rel=0.08)


def test_a_figure_that_is_undefined_has_no_interval() -> None:
    assert not bootstrap(lambda rows: math.nan, 10, 50).known


def test_t_interval_of_positive_samples_is_geometric() -> None:
    # logs 0, 1, 2: mean 1, s = 1, t(0.975, 2) = 4.302653 (any t table), half width 4.302653 / sqrt(3)
    interval = t_interval(np.exp([0.0, 1.0, 2.0]))
    half = 4.302652729911275 / 3**0.5
    assert interval.value == pytest.approx(np.exp(1))
    assert interval.low == pytest.approx(np.exp(1 - half))
    assert interval.high == pytest.approx(np.exp(1 + half))


def test_t_interval_with_a_zero_is_arithmetic() -> None:
    interval = t_interval(np.array([0.0, 1.0, 2.0]))
    assert interval.value == pytest.approx(1.0)
    assert interval.high - interval.value == pytest.approx(4.302652729911275 / 3**0.5)


def test_one_sample_has_no_interval() -> None:
    assert t_interval(np.array([3.0])).value == pytest.approx(3.0)
    assert not t_interval(np.array([3.0])).known
    assert not percentile_interval(1.0, np.array([])).known


def test_blocks_are_runs_of_neighbours_and_the_same_for_every_policy() -> None:
    indices = block_indices(1000, seed=0, replicates=7)
    assert indices.shape == (7, 1000)
    assert indices.min() >= 0 and indices.max() < 1000
    length = block_length(1000)
    assert length == 100
    blocks = indices.reshape(7, -1, length)
    assert (np.diff(blocks, axis=2) == 1).all()
    assert (block_indices(1000, seed=0, replicates=7) == indices).all()


def test_block_bootstrap_covers_the_mean_of_a_dependent_series() -> None:
    """AR(1) with correlation 0.8: independent resampling covers about 50%, blocks far more."""
    covered = naive = 0
    rng = np.random.default_rng(1)
    runs, n = 60, 1000
    index = block_indices(n, seed=0, replicates=150)
    for _ in range(runs):
        noise = rng.standard_normal(n + 200)
        x = np.zeros(n + 200)
        for i in range(1, n + 200):
            x[i] = 0.8 * x[i - 1] + noise[i]
        x = x[200:]
        low, high = np.quantile(x[index].mean(axis=1), [0.025, 0.975])
        covered += low <= 0 <= high
        free = rng.integers(0, n, size=(150, n))
        low, high = np.quantile(x[free].mean(axis=1), [0.025, 0.975])
        naive += low <= 0 <= high
    assert covered / runs >= 0.8
    assert naive < covered

"""Intervals against values worked out elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.sweep.interval import block_indices, block_length, percentile_interval, t_interval


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

"""Emulated predictors reach the ranking quality that they state."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from parsim.emulation import emulate_scores

LENGTHS = np.random.default_rng(0).lognormal(5, 1, 4000).astype(np.int64) + 1


@pytest.mark.parametrize("tau", [-0.5, 0.0, 0.36, 0.6, 0.9])
def test_the_asked_tau_is_reached_and_measured(tau: float) -> None:
    scores, reached = emulate_scores(LENGTHS, tau, seed=1)
    assert reached == pytest.approx(stats.kendalltau(scores, LENGTHS).statistic)
    assert reached == pytest.approx(tau, abs=0.005)


def test_with_heavy_ties_tau_b_is_still_reached() -> None:
    lengths = np.repeat([8, 64, 512], 1000)
    _, reached = emulate_scores(lengths, 0.5, seed=2)
    assert reached == pytest.approx(0.5, abs=0.005)


def test_the_seed_fixes_the_scores() -> None:
    first, _ = emulate_scores(LENGTHS, 0.5, seed=3)
    again, _ = emulate_scores(LENGTHS, 0.5, seed=3)
    other, _ = emulate_scores(LENGTHS, 0.5, seed=4)
    assert (first == again).all()
    assert (first != other).any()


def test_constant_lengths_have_no_tau() -> None:
    scores, reached = emulate_scores(np.full(10, 7), 0.5, seed=0)
    assert np.isnan(reached)
    assert len(scores) == 10

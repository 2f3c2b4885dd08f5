"""tau-b against SciPy where all lengths are known; unbiased where the longer ones are still running."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from parsim.learner.kendall import tau_b


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 9)), min_size=3, max_size=40))
def test_without_bounds_it_is_scipys_tau_b(pairs: list[tuple[int, int]]) -> None:
    scores, lengths = (np.array(column, float) for column in zip(*pairs, strict=True))
    expected = kendalltau(scores, lengths).statistic
    assert tau_b(scores, lengths, np.zeros(len(pairs), bool)).value == pytest.approx(expected, nan_ok=True)


def test_a_bound_counts_only_against_what_is_shorter() -> None:
    # lengths 5, 9 and "more than 6": 5 < 6+, 5 < 9 are known, 9 and 6+ are not
    tau = tau_b(np.array([1.0, 3.0, 2.0]), np.array([5.0, 9.0, 6.0]), np.array([False, False, True]))
    assert tau.value == 1.0
    tau = tau_b(np.array([3.0, 1.0, 2.0]), np.array([5.0, 9.0, 6.0]), np.array([False, False, True]))
    assert tau.value == -1.0
    # a tie of a length and a bound: the cut one would have gone on; two bounds say nothing
    cut = np.array([False, True, True])
    assert tau_b(np.array([1.0, 2.0, 3.0]), np.array([5.0, 5.0, 5.0]), cut).value == 1.0


def test_the_standard_error_is_that_of_repeated_draws() -> None:
    rng = np.random.default_rng(5)
    drawn = []
    for _ in range(200):
        lengths = rng.normal(size=120)
        scores = 0.6 * lengths + rng.normal(size=120)
        drawn.append(tau_b(scores, lengths, np.zeros(120, bool)))
    spread = np.std([tau.value for tau in drawn])
    assert spread < np.mean([tau.error for tau in drawn]) < 1.6 * spread


def test_running_requests_as_bounds_take_out_who_finishes_first() -> None:
    """Scores say only when a request began; those that began late and finished are short. Counting the finished ones
    alone finds a relation where there is none."""
    rng = np.random.default_rng(8)
    naive, corrected = [], []
    for _ in range(60):
        length = rng.exponential(100.0, size=300)
        began = np.sort(rng.uniform(0, 150, size=300))
        elapsed = 160.0 - began
        done = length <= elapsed
        scores = began + rng.normal(scale=5, size=300)
        naive.append(tau_b(scores[done], length[done], np.zeros(done.sum(), bool)).value)
        corrected.append(tau_b(scores, np.minimum(length, elapsed), ~done).value)
    assert np.mean(naive) < -0.1
    assert abs(np.mean(corrected)) < 0.02

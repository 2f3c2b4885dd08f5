"""Rankings with errors of one kind spoil what they should and leave the rest."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau

from parsim.sweep.dial import dial_scores
from parsim.sweep.point import Dial

LENGTHS = np.random.default_rng(0).permutation(np.arange(1, 401))
SHORT, LONG = LENGTHS <= 200, LENGTHS > 200


def tau(scores: np.ndarray, part: np.ndarray) -> float:
    return float(kendalltau(scores[part], LENGTHS[part]).statistic)


@pytest.mark.parametrize("where", ["everywhere", "short", "long", "across"])
def test_the_reached_tau_is_the_measured_one_and_full_quality_is_exact(where: str) -> None:
    scores, reached = dial_scores(LENGTHS, Dial(where, 0.5), seed=1)  # type: ignore[arg-type]
    assert reached == pytest.approx(kendalltau(scores, LENGTHS).statistic)
    _, reached = dial_scores(LENGTHS, Dial(where, 1.0), seed=1)  # type: ignore[arg-type]
    assert reached > 0.99
    assert np.array_equal(dial_scores(LENGTHS, Dial(where, 0.5), seed=1)[0], scores)  # type: ignore[arg-type]


@pytest.mark.parametrize(("where", "spoilt", "right"), [("short", SHORT, LONG), ("long", LONG, SHORT)])
def test_errors_stay_in_their_half(where: str, spoilt: np.ndarray, right: np.ndarray) -> None:
    scores, _ = dial_scores(LENGTHS, Dial(where, 0.25), seed=2)  # type: ignore[arg-type]
    assert tau(scores, right) == 1.0
    assert tau(scores, spoilt) == pytest.approx(0.25, abs=0.05)
    assert scores[SHORT].max() < scores[LONG].min()


def test_errors_across_move_requests_between_the_halves() -> None:
    scores, _ = dial_scores(LENGTHS, Dial("across", 0.5), seed=3)
    crossed = (scores[SHORT] >= 200).mean()
    assert crossed == pytest.approx(0.25, abs=0.005)
    assert sorted(scores) == list(range(400))

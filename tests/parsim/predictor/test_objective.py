from __future__ import annotations

import math

import numpy as np
import pytest

pytestmark = pytest.mark.predictor
torch = pytest.importorskip("torch")

from parsim.predictor.ranker.objective import (  # noqa: E402
    batch_pairs,
    listwise_loss,
    margin_loss,
    ordinal_loss,
    pairwise_loss,
    pointwise_loss,
)
from parsim.predictor.ranker.pairs import relative_gap  # noqa: E402


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def no(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.bool)


def test_margin_loss_by_hand() -> None:
    """Differences 2.0, 0.5, -1.0 with margin 1 cost 0, 0.5 and 2: mean 2.5 / 3."""
    assert margin_loss(tensor(2, 0.5, 0), tensor(0, 0, 1)).item() == pytest.approx(2.5 / 3)


def test_pairwise_loss_by_hand() -> None:
    """Lengths 100, 90, 10, delta 0.2: 100 against 90 is filtered out; 100-10 costs 0, 90-10 costs 0.7."""
    scores, lengths = tensor(1.0, 0.3, 0.0), tensor(100, 90, 10).log()
    assert pairwise_loss(scores, lengths, no(3), delta=0.2).item() == pytest.approx(0.35)
    without = pairwise_loss(scores, lengths, no(3), delta=0.0)
    assert without.item() == pytest.approx((0.0 + 0.7 + 0.3) / 3)


def test_batch_pairs_are_those_of_the_offline_filter() -> None:
    lengths = np.random.default_rng(3).integers(1, 60, size=40).astype(float)
    censored = np.random.default_rng(4).random(40) < 0.2
    longer, shorter = batch_pairs(torch.from_numpy(lengths).log(), torch.from_numpy(censored), 0.25)
    found = set(zip(longer.tolist(), shorter.tolist(), strict=True))
    expected = {
        (one, other)
        for one in range(40)
        for other in range(40)
        if lengths[one] > lengths[other]
        and relative_gap(lengths[[one]], lengths[[other]])[0] >= 0.25
        and not censored[other]
    }
    assert found == expected


def test_no_usable_pair_costs_nothing() -> None:
    scores = tensor(1, 2).requires_grad_()
    loss = pairwise_loss(scores, tensor(3, 3), no(2), delta=0.2)
    loss.backward()
    assert loss.item() == 0 and scores.grad.tolist() == [0, 0]


def test_listmle_by_hand() -> None:
    """Order by length: rows 1, 0, 2 with scores 2, 1, 0.

    First place: log(e^2 + e + 1) - 2; second: log(e + 1) - 1; third: 0. The mean of the three.
    """
    expected = (math.log(math.exp(2) + math.exp(1) + 1) - 2 + math.log(math.exp(1) + 1) - 1) / 3
    assert listwise_loss(tensor(1, 2, 0), tensor(20, 30, 10).log()).item() == pytest.approx(expected)


def test_listmle_prefers_the_true_order() -> None:
    lengths = tensor(1, 2, 3, 4)
    assert listwise_loss(tensor(1, 2, 3, 4), lengths) < listwise_loss(tensor(4, 3, 2, 1), lengths)


def test_pointwise_by_hand() -> None:
    """Errors 1, 2 and, on a censored row whose score is above its target, nothing."""
    censored = torch.tensor([False, False, True])
    assert pointwise_loss(tensor(1, 0, 5), tensor(2, 2, 3), censored).item() == pytest.approx(1.0)
    assert pointwise_loss(tensor(1, 0, 0), tensor(2, 2, 3), censored).item() == pytest.approx(2.0)


def test_ordinal_loss_by_hand() -> None:
    """Cuts at 10 and 100 of a length of 50: a score of 0 gives either answer the probability 2 / 3."""
    cuts = tensor(10, 100).log()
    assert ordinal_loss(tensor(0), tensor(50).log(), no(1), cuts).item() == pytest.approx(math.log(1.5))


def test_a_censored_length_says_nothing_of_longer_cuts() -> None:
    cuts, score, cut_off = tensor(10, 100).log(), tensor(20), torch.ones(1, dtype=torch.bool)
    assert ordinal_loss(score, tensor(50).log(), no(1), cuts).item() > 5
    assert ordinal_loss(score, tensor(50).log(), cut_off, cuts).item() < 1e-6
    assert ordinal_loss(score, tensor(5).log(), cut_off, cuts).item() == 0.0

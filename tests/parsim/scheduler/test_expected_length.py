"""Tokens by score: what is learned from the requests that finish."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.scheduler.expected import BINS, FIRST, ExpectedLength


def learned(pairs: list[tuple[float, int]]) -> ExpectedLength:
    lengths = ExpectedLength()
    for score, tokens in pairs:
        lengths.observe(score, tokens)
    lengths.refit()
    return lengths


def test_nothing_is_expected_before_enough_has_finished() -> None:
    lengths = ExpectedLength()
    for _ in range(FIRST - 1):
        lengths.observe(1.0, 50)
        assert not lengths.refit() and lengths.of(1.0) is None
    lengths.observe(1.0, 50)
    assert lengths.refit() and lengths.of(1.0) == 50.0 and lengths.version == 1


def test_two_kinds_of_score_give_two_lengths_and_a_line_between() -> None:
    lengths = learned([(-1.0, 10)] * 48 + [(3.0, 90)] * 48)
    assert [lengths.of(score) for score in (-9.0, -1.0, 0.0, 1.0, 3.0, 9.0)] == [10, 10, 30, 50, 90, 90]


def test_scores_that_rank_backwards_or_say_nothing_give_one_length_for_all() -> None:
    backwards = learned([(float(-n), n) for n in range(1, 161)])
    assert {backwards.of(score) for score in (-160.0, -80.5, -1.0)} == {80.5}
    constant = learned([(2.0, n) for n in range(1, 161)])
    assert constant.of(-5.0) == constant.of(2.0) == constant.of(7.0) == 80.5


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 900)), min_size=FIRST, max_size=300))
def test_the_curve_never_falls_and_keeps_within_what_was_seen(pairs: list[tuple[int, int]]) -> None:
    lengths = learned([(float(score), tokens) for score, tokens in pairs])
    curve = [lengths.of(score / 2) for score in range(-50, 50)]
    assert curve == sorted(curve)
    seen = [tokens for _, tokens in pairs]
    assert min(seen) <= curve[0] and curve[-1] <= max(seen)


def test_the_order_within_a_step_makes_no_difference() -> None:
    rng = random.Random(2)
    pairs = [(rng.gauss(0, 1), rng.randrange(1, 500)) for _ in range(200)]
    shuffled = rng.sample(pairs, len(pairs))
    scores = [rng.gauss(0, 1) for _ in range(50)]
    assert [learned(pairs).of(s) for s in scores] == [learned(shuffled).of(s) for s in scores]


def test_old_traffic_is_forgotten() -> None:
    lengths = learned([(float(n), 10) for n in range(200)])
    for _ in range(6):
        for n in range(256):
            lengths.observe(float(n), 700)
        lengths.refit()
    assert lengths.of(100.0) == 700


def test_scores_that_are_tokens_are_taken_as_they_are() -> None:
    exact = ExpectedLength(exact=True)
    exact.observe(3.0, 900)
    assert not exact.refit() and exact.of(77.0) == 77.0 and exact.of(0.0) == 1.0


def test_the_mean_of_a_group_is_what_it_says() -> None:
    pairs = [(float(n), n * n) for n in range(BINS * 10)]
    lengths = learned(pairs)
    first = sum(n * n for n in range(10)) / 10
    assert lengths.of(4.5) == pytest.approx(first)

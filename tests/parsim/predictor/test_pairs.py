from __future__ import annotations

import numpy as np

from parsim.predictor.ranker.pairs import draw_pairs, relative_gap


def test_relative_gap() -> None:
    np.testing.assert_allclose(relative_gap(np.array([100.0, 80.0]), np.array([80.0, 100.0])), [0.2, 0.2])


def test_pairs_obey_the_filter_and_point_from_longer_to_shorter() -> None:
    lengths = np.random.default_rng(0).lognormal(4, 1, size=500)
    pairs = draw_pairs(lengths, np.zeros(500, bool), delta=0.2, seed=1)
    longer, shorter = lengths[pairs[:, 0]], lengths[pairs[:, 1]]
    assert (longer > shorter).all()
    assert ((longer - shorter) / longer >= 0.2).all()
    assert pairs.min() >= 0 and pairs.max() < 500


def test_each_prompt_gets_its_partners_and_the_seed_fixes_them() -> None:
    lengths = np.geomspace(1, 1e6, 300)
    pairs = draw_pairs(lengths, np.zeros(300, bool), partners=10, seed=5)
    assert len(pairs) == 3000
    assert pairs.tolist() == draw_pairs(lengths, np.zeros(300, bool), partners=10, seed=5).tolist()
    assert pairs.tolist() != draw_pairs(lengths, np.zeros(300, bool), partners=10, seed=6).tolist()


def test_equal_lengths_make_no_pair() -> None:
    assert len(draw_pairs(np.full(50, 9.0), np.zeros(50, bool), delta=0.0)) == 0


def test_a_censored_length_is_never_the_shorter_one() -> None:
    """Row 0 was cut at 10: it may truly be longer than row 1 (20), but is surely longer than row 2 (5)."""
    pairs = draw_pairs(np.array([10.0, 20.0, 5.0]), np.array([True, False, False]), delta=0.0, seed=0)
    found = {tuple(pair) for pair in pairs.tolist()}
    assert found == {(1, 2), (0, 2)}

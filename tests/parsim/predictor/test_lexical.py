from __future__ import annotations

import numpy as np
import pytest

from parsim.predictor.corpora.corpus import Labelled

pytest.importorskip("sklearn")

from parsim.errors import UserError
from parsim.predictor.quality.baselines import prompt_length, tfidf_ridge, tfidf_ridge_folds
from parsim.predictor.ranker.lexical import Lexical, check_words
from parsim.stats import tau_b


def test_words_tell_the_length(learnable: Labelled) -> None:
    train, test = learnable.take(np.arange(160)), learnable.take(np.arange(160, 240))
    words = Lexical.fit(train.prompts, np.log(train.lengths))
    assert tau_b(words.predict(test.prompts), test.lengths) > 0.6
    assert tau_b(tfidf_ridge(train.prompts, train.lengths, test.prompts), test.lengths) > 0.6


def test_blend_takes_what_ranks_better(learnable: Labelled) -> None:
    rng = np.random.default_rng(0)
    train, rest = learnable.take(np.arange(160)), learnable.take(np.arange(160, 240))
    words = Lexical.fit(train.prompts, np.log(train.lengths))
    useless, perfect = rng.normal(size=80), np.log(rest.lengths)
    on_words = words.blend(useless, rest.prompts, rest.lengths)
    on_encoder = words.blend(perfect, rest.prompts, rest.lengths)
    assert on_words.scale[-1] > 0.8
    assert on_encoder.scale[-1] < 0.2
    assert tau_b(on_words.combine(useless, rest.prompts), rest.lengths) >= tau_b(
        words.predict(rest.prompts), rest.lengths
    )


def test_saved_and_loaded_it_predicts_the_same(learnable: Labelled) -> None:
    words = Lexical.fit(learnable.prompts, np.log(learnable.lengths))
    again = Lexical.from_arrays(words.arrays())
    np.testing.assert_array_equal(words.predict(learnable.prompts), again.predict(learnable.prompts))
    assert len(words.predict([])) == 0
    assert np.isfinite(words.predict(["", "数", "x" * 100_000])).all()


def test_prompt_length_counts_words() -> None:
    assert prompt_length(["one two", "", "a\nb  c"]).tolist() == [2, 0, 3]


def test_folds_score_each_prompt_by_the_others(learnable: Labelled) -> None:
    assert tau_b(tfidf_ridge_folds(learnable.prompts, learnable.lengths), learnable.lengths) > 0.6
    noise = np.random.default_rng(0).lognormal(size=240)
    assert abs(tau_b(tfidf_ridge_folds(learnable.prompts, noise), noise)) < 0.25
    assert not tfidf_ridge_folds(["a", "b"], np.array([1.0, 2.0])).any()


@pytest.mark.parametrize(
    "prompts",
    [
        [chr(0x1F600 + row) for row in range(40)],
        ["?" * (row + 1) for row in range(40)],
        [f"word{row:03}" for row in range(700)],
    ],
    ids=["emoji", "marks", "each word once"],
)
def test_without_words_to_learn_from_the_baseline_ranks_nothing(prompts: list[str]) -> None:
    lengths = np.random.default_rng(0).lognormal(5, 1, size=len(prompts))
    assert np.isnan(tau_b(tfidf_ridge(prompts, lengths, prompts[:20]), lengths[:20]))
    assert not tfidf_ridge_folds(prompts, lengths).any()


def test_words_of_one_fold_alone_do_not_rank_the_others() -> None:
    prompts = ["the only words", *(chr(0x1F600 + row) for row in range(39))]
    assert not tfidf_ridge_folds(prompts, np.arange(1.0, 41.0)).any()


def test_what_words_need_is_known_before_training() -> None:
    check_words(["?", "two words"], ["!", "?"])
    with pytest.raises(UserError, match="lexical=true: none of the 2 training prompts has a word"):
        check_words(["?", "a b c"], ["two words"] * 2)
    with pytest.raises(UserError, match="lexical=true: 1 validation prompts are too few"):
        check_words(["two words"], ["two words"])

"""What any predictor must beat: the prompt's length, and ridge regression on TF-IDF words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def prompt_length(prompts: Sequence[str]) -> Floats:
    """The number of words of each prompt as its score, (n,)."""
    return np.array([len(prompt.split()) for prompt in prompts], dtype=float)


def tfidf_ridge(training: Sequence[str], lengths: Floats, test: Sequence[str]) -> Floats:
    """Scores of `test` by ridge regression of log `lengths` on TF-IDF of the words and word pairs of
    `training`; all 0, which ranks nothing, where `training` has no words to learn from.
    """
    scores = _words_and_ridge(training, lengths, test, _min_df(len(training)))
    return np.zeros(len(test)) if scores is None else scores


def tfidf_ridge_folds(prompts: Sequence[str], lengths: Floats, folds: int = 5) -> Floats:
    """The same baseline where there is no training set: each fold of the prompts is scored by the others,
    (n,).

    Fewer prompts than twice the folds are not scored, nor any where a fold's others have no words to learn from: all
    get 0.
    """
    from sklearn.model_selection import KFold

    scores = np.zeros(len(prompts))
    if len(prompts) < 2 * folds:
        return scores
    min_df = _min_df(len(prompts) * (folds - 1) // folds)
    for others, fold in KFold(folds, shuffle=True, random_state=0).split(scores):
        training, test = ([prompts[row] for row in rows] for rows in (others, fold))
        found = _words_and_ridge(training, lengths[others], test, min_df)
        if found is None:
            return np.zeros(len(prompts))
        scores[fold] = found
    return scores


def _min_df(prompts: int) -> int:
    """Prompts that a word must be in: those of a single one tell nothing once there are many."""
    return 2 if prompts > 500 else 1


def _words_and_ridge(
    training: Sequence[str], lengths: Floats, test: Sequence[str], min_df: int
) -> Floats | None:
    """Predicted log lengths of `test`, or None where no word is in `min_df` prompts of `training`."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=min_df)
    try:
        features = words.fit_transform(training)
    except ValueError:  # for an empty vocabulary, the one thing that it refuses in a list of texts
        return None
    ridge = Ridge(alpha=2.0, solver="sparse_cg", tol=1e-4).fit(features, np.log(lengths))
    scores: Floats = ridge.predict(words.transform(test))
    return scores

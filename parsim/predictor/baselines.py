"""What any predictor must beat: the prompt's length, and ridge regression on TF-IDF words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def prompt_length(prompts: Sequence[str]) -> Floats:
    """The number of words of each prompt as its score, (n,)."""
    return np.array([len(prompt.split()) for prompt in prompts], dtype=float)


def tfidf_ridge(training: Sequence[str], lengths: Floats, test: Sequence[str]) -> Floats:
    """Scores of `test` by ridge regression of log `lengths` on TF-IDF of the words and word pairs of
    `training`.
    """
    scores: Floats = _words_and_ridge(len(training)).fit(training, np.log(lengths)).predict(test)
    return scores


def tfidf_ridge_folds(prompts: Sequence[str], lengths: Floats, folds: int = 5) -> Floats:
    """The same baseline where there is no training set: each fold of the prompts is scored by the others,
    (n,).

    Fewer prompts than twice the folds are not scored: all get 0.
    """
    from sklearn.model_selection import KFold, cross_val_predict

    if len(prompts) < 2 * folds:
        return np.zeros(len(prompts))
    model = _words_and_ridge(len(prompts) * (folds - 1) // folds)
    parts = KFold(folds, shuffle=True, random_state=0)
    scores: Floats = cross_val_predict(model, np.array(prompts, dtype=object), np.log(lengths), cv=parts)
    return scores


def _words_and_ridge(count: int) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2 if count > 500 else 1)
    return make_pipeline(words, Ridge(alpha=2.0, solver="sparse_cg", tol=1e-4))

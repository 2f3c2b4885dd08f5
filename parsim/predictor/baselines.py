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
    """Scores of `test` by ridge regression of log `lengths` on TF-IDF of words and word pairs of `training`."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2 if len(training) > 500 else 1)
    model = make_pipeline(words, Ridge(alpha=2.0, solver="sparse_cg", tol=1e-4))
    scores: Floats = model.fit(training, np.log(lengths)).predict(test)
    return scores

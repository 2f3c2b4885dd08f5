"""A bag of hashed words and a few plain features of the prompt, with ridge weights: cheap, and what an
encoder misses.

Stateless but for its weights (scikit-learn's `HashingVectorizer`), so it is saved as three small arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

WIDTH = 1 << 14
"""Hash buckets; 16 bits each on disk."""


@dataclass(frozen=True)
class Lexical:
    """score = share * (features . weights + intercept) added to the encoder's score, both in standard
    deviations.

    Attributes:
        weights: ridge weights, (WIDTH + plain features,), 16-bit.
        scale: [intercept, mean and spread of the ridge's prediction, mean and spread of the encoder's score,
            share].
    """

    weights: npt.NDArray[np.float16]
    scale: Floats

    @classmethod
    def fit(cls, prompts: Sequence[str], log_lengths: Floats, alpha: float = 3.0) -> Lexical:
        """Ridge regression of log lengths (n,) on the features of prompts; share 0 until `blend`."""
        from sklearn.linear_model import Ridge

        ridge = Ridge(alpha=alpha, solver="sparse_cg", tol=1e-5).fit(_features(prompts), log_lengths)
        weights = ridge.coef_.astype(np.float16)
        return cls(weights=weights, scale=np.array([float(ridge.intercept_), 0.0, 1.0, 0.0, 1.0, 0.0]))

    def predict(self, prompts: Sequence[str]) -> Floats:
        """Expected log length by words alone, (n,)."""
        if not len(prompts):
            return np.empty(0)
        result: Floats = _features(prompts) @ self.weights.astype(np.float64) + self.scale[0]
        return result

    def blend(self, encoder_scores: Floats, prompts: Sequence[str], lengths: Floats) -> Lexical:
        """The same weights with the share, of 0 to 1 in steps of 0.1, that ranks these prompts best.

        The prompts must not be the ones that either part was trained on.
        """
        from parsim.predictor.evaluate import tau_b

        words = self.predict(prompts)
        scale = [
            self.scale[0],
            words.mean(),
            words.std() or 1.0,
            encoder_scores.mean(),
            encoder_scores.std() or 1.0,
        ]
        candidates = [Lexical(self.weights, np.array([*scale, share])) for share in np.linspace(0, 1, 11)]
        return max(candidates, key=lambda one: tau_b(one.combine(encoder_scores, prompts), lengths))

    def combine(self, encoder_scores: Floats, prompts: Sequence[str]) -> Floats:
        """The blended score, (n,): a weighted mean of both parts in standard deviations."""
        _, word_mean, word_spread, mean, spread, share = self.scale
        words = (self.predict(prompts) - word_mean) / word_spread
        result: Floats = share * words + (1 - share) * (encoder_scores - mean) / spread
        return result

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What `from_arrays` takes back."""
        return {"weights": self.weights, "scale": self.scale}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> Lexical:
        """From `arrays`."""
        return cls(weights=arrays["weights"], scale=arrays["scale"])


def _features(prompts: Sequence[str]) -> Any:
    """Sparse (n, WIDTH + 6): hashed words and word pairs, and sizes and marks of the text."""
    from scipy import sparse
    from sklearn.feature_extraction.text import HashingVectorizer

    cut = [prompt[:20_000] for prompt in prompts]
    hashed = HashingVectorizer(
        n_features=WIDTH, ngram_range=(1, 2), alternate_sign=True, norm="l2"
    ).transform(cut)
    plain = np.array(
        [
            [
                np.log1p(len(text)),
                np.log1p(len(text.split())),
                np.log1p(text.count("\n")),
                np.log1p(sum(char.isdigit() for char in text)),
                text.count("?") > 0,
                "```" in text,
            ]
            for text in cut
        ],
        dtype=float,
    )
    return sparse.hstack([hashed, sparse.csr_matrix(plain / 4)], format="csr")

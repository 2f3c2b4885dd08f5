"""A bag of hashed words and a few plain features of the prompt, with ridge weights: cheap, and what an
encoder misses.

Stateless but for its weights (scikit-learn's `HashingVectorizer`), so it is saved as three small arrays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from parsim.errors import UserError

Floats = npt.NDArray[np.float64]

WIDTH = 1 << 14
"""Hash buckets; 16 bits each on disk."""

PLAIN = 6
"""Features beside the words: sizes and marks of the text."""

_WORD = re.compile(r"\b\w\w+\b")
"""What scikit-learn's vectorizers take for a word."""


@dataclass(frozen=True)
class Lexical:
    """score = share * (features . weights + intercept) added to the encoder's score, both in standard
    deviations.

    Attributes:
        weights: ridge weights, (WIDTH + PLAIN,), 16-bit.
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
        from parsim.stats import tau_b

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
        """From `arrays`.

        Raises:
            ValueError: one is missing, too many, of another shape or type, or would give scores that are no numbers.
        """
        if arrays.keys() != {"weights", "scale"}:
            raise ValueError(f"expected weights and scale, got {', '.join(sorted(arrays)) or 'neither'}")
        lexical = cls(weights=arrays["weights"], scale=arrays["scale"])
        flaw = lexical.flaw()
        if flaw:
            raise ValueError(flaw)
        return lexical

    def flaw(self) -> str:
        """Why this cannot score, or nothing."""
        for name, array, kind, size in (
            ("weights", self.weights, np.float16, WIDTH + PLAIN),
            ("scale", self.scale, np.float64, 6),
        ):
            if array.dtype != kind or array.shape != (size,):
                return f"{name} is {array.dtype}{list(array.shape)}, expected {np.dtype(kind)}[{size}]"
            if not np.isfinite(array).all():
                return f"{name} holds something other than finite numbers"
        _, _, word_spread, _, spread, share = self.scale
        if word_spread <= 0 or spread <= 0:
            return f"scale has the spreads {word_spread:g} and {spread:g}, both must be above 0"
        return "" if 0 <= share <= 1 else f"scale has the share {share:g}, expected 0 to 1"


def check_words(training: Sequence[str], validation: Sequence[str]) -> None:
    """Find out before the encoder is trained that `Lexical` has nothing to learn from or to choose its share by.

    Raises:
        UserError: no word in any prompt of `training`, or fewer than two prompts in `validation`.
    """
    if not any(_WORD.search(prompt) for prompt in training):
        raise UserError(
            f"lexical=true: none of the {len(training)} training prompts has a word of two letters or more; leave it"
            " out (lexical=false)"
        )
    if len(validation) < 2:
        raise UserError(
            f"lexical=true: {len(validation)} validation prompts are too few to choose the words' share by, 2 are"
            " needed; take more prompts, a smaller share to test on, or leave it out (lexical=false)"
        )


def _features(prompts: Sequence[str]) -> Any:
    """Sparse (n, WIDTH + PLAIN): hashed words and word pairs, and sizes and marks of the text."""
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

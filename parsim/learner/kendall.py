"""Kendall's tau-b where some lengths are only known to be longer than something."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Tau(NamedTuple):
    """An estimate and its standard error; both NaN where no two requests can be compared."""

    value: float
    error: float


def tau_b(scores: NDArray[np.float64], lengths: NDArray[np.float64], bounds: NDArray[np.bool_]) -> Tau:
    """tau-b over the pairs whose order is known.

    A pair is known if both lengths are, or if the known one is at most the bound of the other (Harrell et al.,
    "Evaluating the yield of medical tests", JAMA 1982). Where every length is known this is tau-b (Kendall 1945).

    Args:
        scores: (n,) finite.
        lengths: (n,), exact or a lower bound.
        bounds: (n,), where the length is longer than `lengths`.

    Returns:
        The estimate, and the standard error of a ratio of U-statistics (Hoeffding 1948), at least that of scores
        without any relation, sqrt(2 (2n + 5) / (9 n (n - 1))).
    """
    count = len(scores)
    if count < 3:
        return Tau(math.nan, math.nan)
    by_score = np.sign(scores[:, None] - scores[None, :]).astype(np.int8)
    by_length = np.sign(lengths[:, None] - lengths[None, :]).astype(np.int8)
    if bounds.any():
        exact = ~bounds
        shorter = (exact[:, None] & bounds[None, :]) & (
            by_length <= 0
        )  # row exact, column longer than its bound
        by_length = np.where(exact[:, None] & exact[None, :], by_length, 0).astype(np.int8)
        by_length[shorter] = -1
        by_length[shorter.T] = 1
        known = (exact[:, None] & exact[None, :]) | shorter | shorter.T
        scored = float(np.count_nonzero(by_score[known]))
    else:
        scored = float(np.count_nonzero(by_score))
    ordered = float(np.count_nonzero(by_length))
    pairs = math.sqrt(scored * ordered)
    if pairs == 0.0:
        return Tau(math.nan, math.nan)
    agreement = (by_score * by_length).sum(axis=1, dtype=np.int64).astype(float)
    compared = np.count_nonzero(by_length, axis=1) * (pairs / ordered)
    value = float(agreement.sum()) / pairs
    residual = agreement - value * compared
    error = 2.0 * math.sqrt(float(residual @ residual)) / pairs
    informative = 1.0 + math.sqrt(2.0 * pairs)  # as many requests as would make so many pairs
    unrelated = math.sqrt(2 * (2 * informative + 5) / (9 * informative * max(informative - 1, 1.0)))
    return Tau(value, max(error, unrelated))

"""Emulated predictors: an oracle degraded to a stated Kendall tau-b."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parsim.seeds import generator
from parsim.stats import tau_b

_SEARCH_STEPS = 24
_TOLERANCE = 0.002
_LARGEST_SAMPLE = 20_000


def emulate_scores(
    output_tokens: NDArray[np.int64], tau: float, seed: int
) -> tuple[NDArray[np.float64], float]:
    """Scores whose Kendall tau-b with the response lengths is `tau`, and the tau-b that was reached.

    A Gaussian copula on ranks: the normal scores of the lengths' ranks (ties in random order) are mixed with
    independent normal noise at correlation rho; without ties rho = sin(pi tau / 2) (Kruskal 1958). Ties in the
    lengths and the finite sample move tau-b, so rho is then searched by bisection on the same noise.

    Args:
        output_tokens: response lengths, shape (n,).
        tau: wanted tau-b in [-1, 1]. With ties in the lengths the largest that untied scores can reach is below
            1; then the nearest is taken.
        seed: fixes ties and noise.

    Returns:
        Scores of shape (n,), higher = longer, and the reached tau-b (NaN if all lengths are equal).
    """
    from scipy.special import ndtri

    lengths = np.asarray(output_tokens)
    count = len(lengths)
    if count < 2 or (lengths == lengths[0]).all():
        return np.zeros(count), float("nan")
    rng = generator(seed)
    ranks = np.empty(count)
    ranks[np.lexsort((rng.random(count), lengths))] = np.arange(1, count + 1)
    signal = ndtri(ranks / (count + 1))
    noise = rng.standard_normal(count)

    def mix(rho: float) -> NDArray[np.float64]:
        return rho * signal + np.sqrt(max(0.0, 1.0 - rho * rho)) * noise

    low, high = -1.0, 1.0
    rho = float(np.sin(np.pi * tau / 2.0))
    for _ in range(_SEARCH_STEPS):
        reached = sampled_tau_b(mix(rho), lengths)
        if abs(reached - tau) <= _TOLERANCE:
            break
        low, high = (rho, high) if reached < tau else (low, rho)
        rho = (low + high) / 2.0
    scores = mix(rho)
    return scores, sampled_tau_b(scores, lengths)


def sampled_tau_b(scores: NDArray[np.float64], lengths: NDArray[np.int64]) -> float:
    """tau-b on at most the first 20,000 pairs of values."""
    return tau_b(scores[:_LARGEST_SAMPLE], lengths[:_LARGEST_SAMPLE])

"""Emulated predictors: the errors of a real one, worked up or down to a stated Kendall tau-b."""

from __future__ import annotations

from functools import lru_cache
from math import cos, pi, sin

import numpy as np
from numpy.typing import NDArray

from parsim.seeds import generator
from parsim.stats import tau_b

Floats = NDArray[np.float64]

UNSEEN_TAUS = (0.2, 0.4, 0.6)
"""Where no scores are at hand, no single tau is known: predictors reached 0.2 to 0.6 on traffic new to them."""

_TEMPLATE = "pars"
"""The bundled predictor whose errors are drawn (tau-b 0.57 on the bundled prompts, which it never saw)."""
_NEIGHBOURS = 30
"""An error is that of a bundled response whose rank is at most so many places (of 4,095) away."""
_SEARCH_STEPS = 24
_TOLERANCE = 0.002
_LARGEST_SAMPLE = 20_000


def emulate_scores(output_tokens: NDArray[np.int64], tau: float, seed: int) -> tuple[Floats, float]:
    """Scores whose Kendall tau-b with the response lengths is `tau`, and the tau-b that was reached.

    Each request takes the score that a real predictor gave to a response of about the same rank in the bundled trace:
    so the share of long responses that are taken for short ones, how well the very long are told apart, and ties are a
    real predictor's, not those of a normal distribution, whose errors are mild where they cost most. Then normal noise
    is mixed in where `tau` is below what that gives, the true rank where it is above; the angle of the mix is found by
    bisection, on the same draws.

    What tau leaves open, how an error weighs in tokens, still differs between kinds of traffic: see
    `docs/policies.md` for emulated beside real scores at equal tau.

    Args:
        output_tokens: response lengths, shape (n,).
        tau: wanted tau-b in [-1, 1]; below 0 the scores of -tau, turned round. With ties in the lengths, scores that
            are not tied where the lengths are cannot come near 1; then the nearest is taken.
        seed: fixes all draws.

    Returns:
        Scores of shape (n,), higher = longer, and the reached tau-b (NaN if all lengths are equal).
    """
    lengths = np.ascontiguousarray(output_tokens)
    scores, reached = _emulated(lengths.tobytes(), lengths.dtype.str, abs(tau), seed)
    return (-scores, -reached) if tau < 0 else (scores.copy(), reached)


@lru_cache(maxsize=16)
def _emulated(content: bytes, dtype: str, tau: float, seed: int) -> tuple[Floats, float]:
    """A sweep asks for the same scores at every load and guard."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    lengths = np.frombuffer(content, dtype)
    count = len(lengths)
    if count < 2 or (lengths == lengths[0]).all():
        return np.zeros(count), float("nan")
    rng = generator(seed)
    drawn = _drawn(lengths, rng)
    truth = ndtri((rankdata(lengths) - 0.5) / count)
    noise = rng.standard_normal(count)
    if tau >= 1.0:
        return truth, sampled_tau_b(truth, lengths)

    def mix(angle: float) -> Floats:
        return cos(angle) * drawn + sin(abs(angle)) * (noise if angle > 0 else truth)

    low, high = -pi / 2, 3 * pi / 4  # tau-b falls from 1, and ends below 0
    angle = 0.0
    for _ in range(_SEARCH_STEPS):
        reached = sampled_tau_b(mix(angle), lengths)
        if abs(reached - tau) <= _TOLERANCE:
            break
        low, high = (angle, high) if reached > tau else (low, angle)
        angle = (low + high) / 2.0
    scores = mix(angle)
    return scores, sampled_tau_b(scores, lengths)


def _drawn(lengths: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """For each length the standardised score of a bundled response of about the same rank; some are tied."""
    template, tied = _template()
    rank = np.empty(len(lengths))
    rank[np.lexsort((rng.random(len(lengths)), lengths))] = np.arange(len(lengths)) / len(lengths)
    near = (rank * len(template)).astype(np.int64) + rng.integers(-_NEIGHBOURS, _NEIGHBOURS + 1, len(lengths))
    scores = template[np.clip(near, 0, len(template) - 1)]
    order = np.argsort(scores, kind="stable")
    own = np.arange(len(lengths))
    own[1:][rng.random(len(lengths) - 1) < tied] = 0
    scores[order] = scores[order][np.maximum.accumulate(own)]  # the tied take the score of the next lower
    return scores


@lru_cache(maxsize=1)
def _template() -> tuple[Floats, float]:
    """The bundled predictor's scores, standardised, by the rank of the response length; and the share of them that are
    tied with another's."""
    import polars as pl

    from parsim.traces.trace import BUNDLED

    frame = pl.read_parquet(BUNDLED, columns=["output_tokens", f"score.{_TEMPLATE}"])
    scores = frame.sort("output_tokens", maintain_order=True)[f"score.{_TEMPLATE}"].to_numpy()
    tied = 1.0 - len(np.unique(scores)) / len(scores)
    return (scores - scores.mean()) / scores.std(), tied


def sampled_tau_b(scores: Floats, lengths: NDArray[np.int64]) -> float:
    """tau-b on at most the first 20,000 pairs of values."""
    return tau_b(scores[:_LARGEST_SAMPLE], lengths[:_LARGEST_SAMPLE])

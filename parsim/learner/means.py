"""Running means of what was to be predicted, by keys that get finer and finer."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from parsim.scheduler.features import Features

BITS = 16
PRIOR = 4.0
"""A key's mean counts for as much as the coarser key's once it has been seen this often."""
OVER = 64
"""A key's mean is over about so many of its last requests."""


class KeyedMeans:
    """The mean of the finest key that has been seen, shrunk towards those of the coarser ones.

    Keys: all; the app; app, limit and structure; these and the length of the prompt in powers of 2; these and how the
    prompt begins (a template, a system prompt); the whole prompt (asked again).
    """

    def __init__(self) -> None:
        self.sums = np.zeros((2, 1 << BITS))
        """Mean and weight of each key."""

    @staticmethod
    def keys(ids: NDArray[np.uint64], features: Features, app: int) -> tuple[int, ...]:
        """Places of the keys of a request, the coarsest first."""
        limit = -1 if features.max_tokens is None else features.max_tokens
        inner = (app, limit, features.structured)
        length = features.prompt_tokens.bit_length()
        opening, whole = ids[:16].tobytes(), ids.tobytes()
        parts = ((), (app,), inner, (*inner, length), (*inner, opening), (app, whole))
        return tuple(_place(number, part) for number, part in enumerate(parts[:4] if not len(ids) else parts))

    def predict(self, keys: tuple[int, ...]) -> float:
        """The mean expected of these keys; 0 before anything was learned."""
        means, weights = self.sums
        estimate = float(means[keys[0]])
        for key in keys[1:]:
            weight = float(weights[key])
            estimate = (weight * float(means[key]) + PRIOR * estimate) / (weight + PRIOR)
        return estimate

    def learn(self, keys: tuple[int, ...], target: float, bound: bool) -> None:
        """Learn one finished request; a lower bound counts where it is above what was expected."""
        if bound:
            target = max(target, self.predict(keys))
        means, weights = self.sums
        for key in keys:
            weights[key] = min(weights[key] + 1.0, OVER)
            means[key] += (target - means[key]) / weights[key]


def _place(number: int, part: tuple[object, ...]) -> int:
    return zlib.crc32(repr((number, part)).encode()) >> (32 - BITS)

"""How sure: paired-seed t intervals and a moving-block bootstrap.

Requests of one run are dependent (they share one queue), so a run is one observation, never many.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
BOOTSTRAP_REPLICATES = 200
"""Enough for a 95% percentile interval whose ends move by about a tenth of its width."""


class Interval(NamedTuple):
    """An estimate with its 95% interval. Both ends are NaN where there was nothing to tell the spread from."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        return self.low == self.low

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]" if self.known else f"{self.value:.3g}"


def t_interval(samples: Floats, level: float = 0.95) -> Interval:
    """Mean and Student t interval over independent samples (one a seed).

    Positive samples are averaged as logarithms (a geometric mean): latencies and their ratios vary by factors.
    """
    from scipy import stats

    x = np.asarray(samples, dtype=float)
    positive = bool(np.all(x > 0))
    y = np.log(x) if positive else x
    centre, back = float(np.mean(y)), np.exp if positive else float
    if len(y) < 2 or not np.all(np.isfinite(y)):
        return Interval(float(back(centre)), float("nan"), float("nan"))
    half = float(stats.t.ppf(0.5 + level / 2, len(y) - 1)) * float(np.std(y, ddof=1)) / len(y) ** 0.5
    return Interval(float(back(centre)), float(back(centre - half)), float(back(centre + half)))


def percentile_interval(value: float, replicates: Floats, level: float = 0.95) -> Interval:
    """The estimate on all requests with the percentile interval of its bootstrap replicates."""
    x = np.asarray(replicates, dtype=float)
    if len(x) < 2 or not np.all(np.isfinite(x)):
        return Interval(value, float("nan"), float("nan"))
    low, high = np.quantile(x, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(value, float(low), float(high))


def block_length(requests: int) -> int:
    """Requests in a block: n^(2/3), longer than the n^(1/3) of weakly dependent series because a busy period
    ties thousands of requests together; at least one."""
    return max(1, round(requests ** (2 / 3)))


def block_indices(requests: int, seed: int, replicates: int = BOOTSTRAP_REPLICATES) -> npt.NDArray[np.int64]:
    """Which requests each bootstrap replicate holds: (replicates, requests) indices in arrival order.

    Moving blocks (Kunsch 1989): blocks of `block_length` consecutive requests, drawn with replacement. The same
    arguments give the same blocks, so that replicate i of one policy pairs with replicate i of another.
    """
    length = block_length(requests)
    blocks = -(-requests // length)
    starts = np.random.default_rng(seed).integers(0, requests - length + 1, size=(replicates, blocks))
    return (starts[:, :, None] + np.arange(length)).reshape(replicates, -1)[:, :requests]

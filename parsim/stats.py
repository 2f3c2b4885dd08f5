"""Figures of samples: rank correlation, and intervals that say how sure an estimate is.

Requests of one run are dependent (they share one queue), so a run is one observation, never many.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from parsim.seeds import generator

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
BOOTSTRAP_REPLICATES = 200
"""Enough for a 95% percentile interval whose ends move by about a tenth of its width."""


class Interval(NamedTuple):
    """An estimate with its 95% interval. Both ends are NaN where there was nothing to tell the spread from."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether it has ends."""
        return self.low == self.low

    def __str__(self) -> str:
        return format(self)

    def __format__(self, spec: str) -> str:
        """`value [low, high]`, each as the format says (three significant figures by default)."""
        if math.isnan(self.value):
            return "undefined"
        value, low, high = (format(number, spec or ".3g") for number in self)
        return f"{value} [{low}, {high}]" if self.known else value


def tau_b(scores: npt.ArrayLike, lengths: npt.ArrayLike) -> float:
    """Kendall's tau-b, ties corrected (Kendall 1945); NaN if either is constant: nothing is ranked then."""
    from scipy.stats import kendalltau

    x, y = np.asarray(scores), np.asarray(lengths)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(kendalltau(x, y, variant="b").statistic)


def t_interval(samples: npt.ArrayLike, level: float = 0.95) -> Interval:
    """Mean and Student t interval over independent samples (one a seed).

    Positive samples are averaged as logarithms (a geometric mean): latencies and their ratios vary by factors.
    """
    from scipy import stats

    x = np.asarray(samples, dtype=float)
    positive = bool(np.all(x > 0))
    y = np.log(x) if positive else x
    centre, back = float(np.mean(y)), np.exp if positive else float
    if len(y) < 2 or not np.all(np.isfinite(y)):
        return Interval(float(back(centre)), math.nan, math.nan)
    half = float(stats.t.ppf(0.5 + level / 2, len(y) - 1)) * float(stats.sem(y))
    return Interval(float(back(centre)), float(back(centre - half)), float(back(centre + half)))


def spread_interval(value: float, again: npt.ArrayLike, level: float = 0.95) -> Interval:
    """The estimate on all of the data, and around it as far as estimates on the data drawn again stray from it.

    Their root mean square distance stands for the standard error (a bootstrap's, with what its blocks shift), with
    Student's t for how few they are. Positive values are taken as logarithms.
    """
    from scipy import stats

    x = np.asarray(again, dtype=float)
    positive = value > 0 and bool(np.all(x > 0))
    y, centre, back = (np.log(x), math.log(value), np.exp) if positive else (x, value, float)
    if len(y) < 1 or not np.all(np.isfinite(y)) or not math.isfinite(centre):
        return Interval(value, math.nan, math.nan)
    half = float(stats.t.ppf(0.5 + level / 2, len(y))) * math.sqrt(float(np.mean((y - centre) ** 2)))
    return Interval(value, float(back(centre - half)), float(back(centre + half)))


def grouped_interval(samples: npt.ArrayLike, groups: npt.ArrayLike, level: float = 0.95) -> Interval:
    """`t_interval` over the means of groups: samples of one group share what was drawn once for it."""
    x, of = np.asarray(samples, dtype=float), np.asarray(groups)
    positive = bool(np.all(x > 0))
    y = np.log(x) if positive else x
    means = np.array([y[of == group].mean() for group in np.unique(of)])
    return t_interval(np.exp(means) if positive else means, level)


def percentile_interval(value: float, replicates: npt.ArrayLike, level: float = 0.95) -> Interval:
    """The estimate on all of the data with the percentile interval of its bootstrap replicates."""
    x = np.asarray(replicates, dtype=float)
    if math.isnan(value) or len(x) < 2 or not np.all(np.isfinite(x)):
        return Interval(value, math.nan, math.nan)
    low, high = np.quantile(x, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(value, float(low), float(high))


def bootstrap(figure: Callable[[Indices], float], count: int, replicates: int, seed: int = 0) -> Interval:
    """`figure` of all of `count` independent rows, with the percentile interval over rows drawn with replacement.

    Replicates in which the figure is undefined (all drawn rows are alike) are left out.
    """
    drawn = np.array([figure(rows) for rows in generator(seed).integers(count, size=(replicates, count))])
    return percentile_interval(figure(np.arange(count)), drawn[np.isfinite(drawn)])


def block_length(requests: int) -> int:
    """Requests in a block: n^(2/3), longer than the n^(1/3) of weakly dependent series because a busy period
    ties thousands of requests together; at least one."""
    return max(1, round(requests ** (2 / 3)))


def block_indices(requests: int, seed: int, replicates: int = BOOTSTRAP_REPLICATES) -> Indices:
    """Which requests each bootstrap replicate holds: (replicates, requests) indices in arrival order.

    Moving blocks (Kunsch 1989): blocks of `block_length` consecutive requests, drawn with replacement. The same
    arguments give the same blocks, so that replicate i of one policy pairs with replicate i of another.
    """
    length = block_length(requests)
    blocks = -(-requests // length)
    starts = generator(seed).integers(0, requests - length + 1, size=(replicates, blocks))
    return (starts[:, :, None] + np.arange(length)).reshape(replicates, -1)[:, :requests]

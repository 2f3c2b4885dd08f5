"""How well scores rank lengths: Kendall's tau_b with intervals, its ceiling, and where the errors are.

Every figure is over unfiltered prompts: leaving out pairs of like length, as training does, overstates a
ranking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from parsim.predictor.ranker.pairs import relative_gap
from parsim.stats import Floats, Interval, bootstrap, tau_b

RESAMPLES = 500
"""Bootstrap resamples of an interval."""


def tau_interval(scores: Floats, lengths: Floats, *, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """tau_b with its bootstrap interval over prompts; `scores` and `lengths` of shape (prompts,)."""
    return bootstrap(lambda rows: tau_b(scores[rows], lengths[rows]), len(scores), resamples, seed)


def tau_by_group(scores: Floats, lengths: Floats, groups: list[str], *, seed: int = 0) -> pl.DataFrame:
    """tau_b within each group: columns group, prompts, tau_b, low, high; the largest group first."""
    names = np.array(groups)
    rows = []
    for group in sorted(set(groups)):
        some = names == group
        found = tau_interval(scores[some], lengths[some], seed=seed)
        rows.append((group, int(some.sum()), found.value, found.low, found.high))
    frame = pl.DataFrame(rows, schema=["group", "prompts", "tau_b", "low", "high"], orient="row")
    return frame.sort("prompts", "group", descending=[True, False])


@dataclass(frozen=True)
class Ceiling:
    """What sampling noise leaves to be predicted, from repeated samples of the same model.

    Attributes:
        sample: tau_b between one sample's lengths and another's, averaged over pairs of samples, with its
            interval.
        expected: estimate for a predictor that knows each prompt's expected length: if two samples have
            correlation r = sin(pi/2 tau) on the normal scale, the expectation has sqrt(r) with either of them
            (Spearman's correction for attenuation), which is back on tau's scale 2/pi asin(sqrt(r)).
        prompts: prompts with two or more samples.
    """

    sample: Interval
    expected: float
    prompts: int


def noise_ceiling(samples: pl.DataFrame, *, seed: int = 0) -> Ceiling | None:
    """The ceiling from `Corpus.samples` (columns prompt, samples); None where no prompt has two samples."""
    repeated = samples.filter(pl.col("samples").list.len() >= 2)
    if len(repeated) < 2:
        return None
    count = int(repeated["samples"].list.len().min())  # type: ignore[arg-type]
    table = np.stack(repeated["samples"].list.head(count).to_list()).astype(float)
    pairs = [(one, other) for one in range(count) for other in range(one)]

    def mean_tau(rows: npt.NDArray[np.int64]) -> float:
        return float(np.mean([tau_b(table[rows, one], table[rows, other]) for one, other in pairs]))

    sample = bootstrap(mean_tau, len(table), RESAMPLES // (5 if len(pairs) > 3 else 1), seed)
    reliability = math.sin(math.pi / 2 * sample.value)
    known = not math.isnan(reliability)
    expected = 2 / math.pi * math.asin(math.sqrt(max(0.0, reliability))) if known else math.nan
    return Ceiling(sample=sample, expected=expected, prompts=len(repeated))


def pair_accuracy(scores: Floats, lengths: Floats, *, seed: int = 0, pairs: int = 200_000) -> pl.DataFrame:
    """Share of pairs put in the right order, by relative length gap; equal scores count half.

    Columns gap (text), pairs, accuracy; the last row is all pairs of different length. Pairs are drawn at
    random.
    """
    rng = np.random.default_rng(seed)
    one, other = rng.integers(len(scores), size=(2, pairs))
    gap = relative_gap(lengths[one], lengths[other])
    agreement = np.sign(scores[one] - scores[other]) * np.sign(lengths[one] - lengths[other])
    right = (agreement + 1) / 2
    edges = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    bins = [
        (f"{low:.0%} to {high:.0%}", (gap > 0) & (gap >= low) & (gap < high)) for low, high in _steps(edges)
    ]
    bins.append(("all", gap > 0))
    return pl.DataFrame(
        {
            "gap": [name for name, _ in bins],
            "pairs": [int(some.sum()) for _, some in bins],
            "accuracy": [float(right[some].mean()) if some.any() else math.nan for _, some in bins],
        }
    )


def calibration(scores: Floats, lengths: Floats, parts: int = 10) -> pl.DataFrame:
    """Lengths by tenth of the score, the lowest scores first: columns part, prompts, mean_score, p10, median,
    p90.

    A calibrated ranking has medians that rise from part to part; the spread within a part is what it cannot
    tell.
    """
    order = np.argsort(scores, kind="stable")
    chunks = [chunk for chunk in np.array_split(order, parts) if len(chunk)]
    quantiles = np.array([np.quantile(lengths[chunk], [0.1, 0.5, 0.9]) for chunk in chunks])
    return pl.DataFrame(
        {
            "part": np.arange(1, len(chunks) + 1),
            "prompts": [len(chunk) for chunk in chunks],
            "mean_score": [float(scores[chunk].mean()) for chunk in chunks],
            "p10": quantiles[:, 0],
            "median": quantiles[:, 1],
            "p90": quantiles[:, 2],
        }
    )


def _steps(edges: list[float]) -> list[tuple[float, float]]:
    return list(zip(edges, [*edges[1:-1], 1.0 + 1e-9], strict=False))

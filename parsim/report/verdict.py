"""The verdict and the numbers of its sentences, read from the tables of a sweep."""

from __future__ import annotations

import polars as pl

from parsim.report.page import VerdictKind
from parsim.sweep.judge import (
    BEST_ORDER,
    BY_RESPONSE,
    HEADLINE,
    NOTICEABLE,
    QUEUE_SHARE,
    Answer,
    Judgement,
    base_rows,
    beyond_noise,
    cost,
    gain,
    judge,
    longer,
    queue_share,
)
from parsim.sweep.results import Results

__all__ = [
    "BEST_ORDER",
    "BY_RESPONSE",
    "HEADLINE",
    "KINDS",
    "NOTICEABLE",
    "QUEUE_SHARE",
    "Judgement",
    "base_rows",
    "beyond_noise",
    "cost",
    "decile_cost",
    "gain",
    "judge",
    "longer",
    "mean_of",
    "queue_share",
    "shared_seeds",
]

KINDS: dict[Answer, VerdictKind] = {
    "helps": "good",
    "helps the mean, hurts the tail": "mixed",
    "hurts": "poor",
    "makes no difference": "neutral",
    "cannot help": "neutral",
    "undecided": "mixed",
    "not asked": "neutral",
}
"""The colour of the verdict's box."""


def shared_seeds(results: Results, load: float) -> list[int]:
    """The seeds that every policy of the sweep has run at `load`; those added for the verdict are among them."""
    ran = [set(base_rows(results, name, load)["seed"]) for name in results.facts["policies"]]
    return sorted(set.intersection(*(seeds for seeds in ran if seeds)))


def mean_of(results: Results, policy: str, load: float, metric: str) -> float:
    """The metric's plain mean over the seeds that every policy of the sweep has run: those of the gains."""
    rows = base_rows(results, policy, load)
    shared = pl.col("seed").is_in(shared_seeds(results, load))
    return float(rows.filter(shared)[metric].mean())  # type: ignore[arg-type]


def decile_cost(results: Results, policy: str, load: float, group: str, column: str) -> float:
    """A decile's latency under the policy over that under FCFS, means over the grid's seeds."""
    values = []
    for name in (policy, "fcfs"):
        rows = base_rows(results, name, load)["row"].implode()
        chosen = pl.col("row").is_in(rows) & (pl.col("kind") == "decile") & (pl.col("group") == group)
        values.append(float(results.groups.filter(chosen)[column].mean() or float("nan")))  # type: ignore[arg-type]
    return values[0] / values[1] if values[1] else float("nan")

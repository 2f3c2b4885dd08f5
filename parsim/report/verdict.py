"""Does it help? The judgement and the numbers it rests on, from the tables of a sweep.

A gain is FCFS's metric over the policy's: 2.0 means that the policy halves it. A claim is made only where the whole
95% interval supports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from parsim.report.page import VerdictKind
from parsim.stats import Interval
from parsim.sweep.results import Results

Answer = Literal["helps", "helps the mean, hurts the tail", "hurts", "does not help", "cannot help"]

HEADLINE = "mean_per_token_latency_ms"
TAILS = ("p99_e2el_ms", "p99_ttft_ms", "p99_per_token_latency_ms")
NOTICEABLE = 1.02
"""Gains below 2% are called none: no operator can see them."""
TAIL_COST = 1.05
"""A tail more than 5% longer, with its whole interval above that of FCFS, is a cost that the headline names."""
QUEUE_SHARE = 0.05
"""Queueing has begun where FCFS requests spend 5% of their latency waiting on average."""


@dataclass(frozen=True)
class Judgement:
    """What the sweep says at one load.

    Attributes:
        answer: in one phrase.
        policy: the policy judged: the best that an engine can run by the headline metric; the sweep's candidate (PARS)
            where it is as good.
        load: the load judged.
        gain: of the policy in the headline metric; `oracle`: of Oracle SJF (None where it was not run).
        tails: tail metric -> policy / FCFS (above 1: longer than FCFS).
        onset: the lowest load at which FCFS queues, None if none of the sweep's loads.
        helps_from: the lowest load at which the policy's gain is beyond noise, None if none.
    """

    answer: Answer
    policy: str
    load: float
    gain: Interval
    oracle: Interval | None
    tails: dict[str, Interval]
    onset: float | None
    helps_from: float | None

    @property
    def kind(self) -> VerdictKind:
        kinds: dict[Answer, VerdictKind] = {
            "helps": "good",
            "helps the mean, hurts the tail": "mixed",
            "hurts": "poor",
            "does not help": "neutral",
            "cannot help": "neutral",
        }
        return kinds[self.answer]


def base_rows(results: Results, policy: str, load: float) -> pl.DataFrame:
    """The replicates of `policy` at `load` with the sweep's first settings; no rows where it was not run."""
    rows = results.base.get((policy, load))
    return results.results.clear() if rows is None else rows


def gain(results: Results, policy: str, load: float, metric: str = HEADLINE) -> Interval:
    """FCFS's metric over the policy's at `load`, paired."""
    return results.ratio(base_rows(results, "fcfs", load), base_rows(results, policy, load), metric)


def cost(results: Results, policy: str, load: float, metric: str) -> Interval:
    """The policy's metric over FCFS's at `load`, paired."""
    return results.ratio(base_rows(results, policy, load), base_rows(results, "fcfs", load), metric)


def beyond_noise(interval: Interval) -> bool:
    """Whether the whole interval lies above `NOTICEABLE` (one replicate: whether the estimate does)."""
    return (interval.low if interval.known else interval.value) > NOTICEABLE


def judge(results: Results, load: float | None = None) -> Judgement:
    """The judgement at `load` (default: the sweep's focus)."""
    load = results.facts["focus_load"] if load is None else load
    names = [
        n for n, facts in results.facts["policies"].items() if facts["ranked"] and not facts["clairvoyant"]
    ]
    gains = {name: gain(results, name, load) for name in names}
    best = max(gains, key=lambda n: (gains[n].value == gains[n].value, gains[n].value)) if gains else "fcfs"
    candidate = results.facts["candidate"]
    if candidate in gains and gains[candidate].value >= gains[best].value / NOTICEABLE:
        best = candidate  # no operator can see the difference
    own = gains.get(best, Interval(1.0, 1.0, 1.0))
    oracle = gain(results, "oracle", load) if "oracle" in results.facts["policies"] else None
    tails = {m: cost(results, best, load, m) for m in TAILS} if gains else {}
    return Judgement(
        answer=_answer(own, oracle, tails),
        policy=best,
        load=load,
        gain=own,
        oracle=oracle,
        tails=tails,
        onset=next((x for x in results.facts["loads"] if queue_share(results, x) >= QUEUE_SHARE), None),
        helps_from=next(
            (x for x in results.facts["loads"] if best in gains and beyond_noise(gain(results, best, x))),
            None,
        ),
    )


def _answer(own: Interval, oracle: Interval | None, tails: dict[str, Interval]) -> Answer:
    if beyond_noise(own):
        return "helps the mean, hurts the tail" if longer(tails) else "helps"
    if (own.high if own.known else own.value) < 1 / NOTICEABLE:
        return "hurts"
    if oracle is not None and not beyond_noise(oracle):
        return "cannot help"
    return "does not help"


def longer(tails: dict[str, Interval]) -> list[str]:
    """The tail metrics that are longer than under FCFS beyond noise, the worst first."""
    names = [m for m, t in tails.items() if (t.low if t.known else t.value) > 1 and t.value > TAIL_COST]
    return sorted(names, key=lambda m: -tails[m].value)


def queue_share(results: Results, load: float) -> float:
    """Mean queueing time over mean latency of FCFS at `load`."""
    rows = base_rows(results, "fcfs", load)
    return float(rows["mean_queue_ms"].mean() or 0.0) / max(float(rows["mean_e2el_ms"].mean() or 0.0), 1e-12)  # type: ignore[arg-type]


def mean_of(results: Results, policy: str, load: float, metric: str) -> float:
    """The metric's plain mean over replicates."""
    return float(base_rows(results, policy, load)[metric].mean())  # type: ignore[arg-type]


def decile_cost(results: Results, policy: str, load: float, group: str, column: str) -> float:
    """A decile's latency under the policy over that under FCFS, means over replicates."""
    values = []
    for name in (policy, "fcfs"):
        rows = base_rows(results, name, load)["row"].implode()
        chosen = pl.col("row").is_in(rows) & (pl.col("kind") == "decile") & (pl.col("group") == group)
        values.append(float(results.groups.filter(chosen)[column].mean() or float("nan")))  # type: ignore[arg-type]
    return values[0] / values[1] if values[1] else float("nan")

"""The answer in words, and every number in it, from the tables of a sweep.

A gain is FCFS's metric over the policy's: 2.0 means that the policy halves it. A claim is made only where the whole
95% interval supports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl
from markupsafe import Markup

from parsim.report.page import VerdictKind, figure, number
from parsim.sweep.interval import Interval
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
        policy: the policy judged: the best that an engine can run by the headline metric.
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
    """The replicates of `policy` at `load` with the sweep's first settings."""
    rows = results.select("main", policy=policy, load=load)
    if rows.is_empty():
        return rows
    first = rows.row(0, named=True)
    same = [pl.col(c).eq_missing(pl.lit(first[c])) for c in ("starvation_threshold_s", "victim", "changed")]
    return rows.filter(*same)


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
    names = [n for n in results.facts["policies"] if n not in ("fcfs", "oracle", "hrrn")]
    gains = {name: gain(results, name, load) for name in names}
    best = max(gains, key=lambda n: (gains[n].value == gains[n].value, gains[n].value)) if gains else "fcfs"
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
        longer = [t for t in tails.values() if (t.low if t.known else t.value) > 1 and t.value > TAIL_COST]
        return "helps the mean, hurts the tail" if longer else "helps"
    if (own.high if own.known else own.value) < 1 / NOTICEABLE:
        return "hurts"
    if oracle is not None and not beyond_noise(oracle):
        return "cannot help"
    return "does not help"


def queue_share(results: Results, load: float) -> float:
    """Mean queueing time over mean latency of FCFS at `load`."""
    rows = base_rows(results, "fcfs", load)
    return float(rows["mean_queue_ms"].mean() or 0.0) / max(float(rows["mean_e2el_ms"].mean() or 0.0), 1e-12)  # type: ignore[arg-type]


def headline(j: Judgement, results: Results) -> Markup:
    """The answer in one sentence."""
    name = display(results, j.policy)
    where = Markup("at {} requests/s").format(_rate(results, j.load))
    gained = _gain_number(j.gain, j.policy, j.load)
    match j.answer:
        case "helps":
            return Markup("{} helps: mean latency per token {} lower than FCFS {}.").format(
                name, gained, where
            )
        case "helps the mean, hurts the tail":
            worst = max(j.tails, key=lambda m: j.tails[m].value)
            return Markup(
                "{} helps the mean but hurts the tail: {} lower mean latency per token, {} longer {} {}."
            ).format(name, gained, tail_number(j, worst), METRIC_WORDS[worst], where)
        case "hurts":
            worse = number(
                1 / j.gain.value,
                times(1 / j.gain.value),
                "loss",
                policy=j.policy,
                load=j.load,
                metric=HEADLINE,
            )
            return Markup("{} hurts: mean latency per token {} higher than FCFS {}.").format(
                name, worse, where
            )
        case "does not help":
            return Markup("{} does not help {}, though a perfect ranking would.").format(name, where)
        case _:
            return Markup("No ordering can help {}: even Oracle SJF gains nothing beyond noise.").format(
                where
            )


NAMES = {
    "fcfs": "FCFS",
    "oracle": "Oracle SJF",
    "pars": "PARS",
    "pars-cross": "PARS-cross",
    "pars-plus": "PARS-plus",
}
METRIC_WORDS = {
    "p99_e2el_ms": "p99 latency",
    "p99_ttft_ms": "p99 time to first token",
    "p99_per_token_latency_ms": "p99 latency per token",
}


def display(results: Results, policy: str) -> str:
    """The policy's label as people say it: emulated predictors always say so."""
    facts = results.facts["policies"].get(policy)
    label: str = facts["label"] if facts else policy
    return label.replace(policy, NAMES.get(policy, policy), 1)


def times(value: float) -> str:
    return f"{figure(value)}x"


def _rate(results: Results, load: float) -> Markup:
    rate = load * results.facts["trace"]["rate_rps"]
    return number(rate, figure(rate), "rate", load=load)


def _gain_number(interval: Interval, policy: str, load: float, metric: str = HEADLINE) -> Markup:
    return number(interval.value, times(interval.value), "gain", policy=policy, load=load, metric=metric)


def tail_number(j: Judgement, metric: str) -> Markup:
    """How much longer the policy's tail is than FCFS's."""
    value = j.tails[metric].value
    return number(value, times(value), "cost", policy=j.policy, load=j.load, metric=metric)


def interval_words(interval: Interval, results: Results, what: str, **facts: object) -> Markup:
    """` (95% interval a to b ...)`, or that there is none."""
    if not interval.known:
        return Markup(" (one run: no interval)")
    how = (
        f"{len(results.facts['seeds'])} paired seeds"
        if results.facts["trace"]["redrawn"]
        else "block bootstrap"
    )
    return Markup(" (95% interval {} to {}, {})").format(
        number(interval.low, times(interval.low), f"{what}-low", **facts),
        number(interval.high, times(interval.high), f"{what}-high", **facts),
        how,
    )


def mean_of(results: Results, policy: str, load: float, metric: str) -> float:
    """The metric's plain mean over replicates."""
    return float(base_rows(results, policy, load)[metric].mean())  # type: ignore[arg-type]


def metric_number(results: Results, policy: str, load: float, metric: str, unit: str) -> Markup:
    """A metric's mean in a sentence, in seconds or as it is."""
    value = mean_of(results, policy, load, metric)
    shown = seconds_words(value / 1e3) if metric.endswith("_ms") else f"{figure(value)} {unit}".strip()
    return number(value, shown, "mean", policy=policy, load=load, metric=metric)


def seconds_words(seconds: float) -> str:
    """Seconds as people say them: ms below one second, minutes above two."""
    if seconds != seconds:
        return "-"
    if abs(seconds) < 1:
        return f"{figure(seconds * 1e3)} ms"
    return f"{figure(seconds)} s" if abs(seconds) < 120 else f"{figure(seconds / 60)} min"


def sentences(j: Judgement, results: Results) -> list[Markup]:
    """By how much and how sure; who pays; where it begins; what else is known."""
    facts = results.facts
    out: list[Markup] = []
    own = {"policy": j.policy, "load": j.load, "metric": HEADLINE}
    if j.policy != "fcfs":
        out.append(
            Markup("Mean latency per token: FCFS {}, {} {}; that is {}{}.").format(
                metric_number(results, "fcfs", j.load, HEADLINE, "ms"),
                display(results, j.policy),
                metric_number(results, j.policy, j.load, HEADLINE, "ms"),
                _gain_number(j.gain, j.policy, j.load),
                interval_words(j.gain, results, "gain", **own),
            )
        )
    if j.oracle is not None:
        oracle = {"policy": "oracle", "load": j.load, "metric": HEADLINE}
        out.append(
            Markup(
                "Oracle SJF, which knows every length, gains {}{}: no predictor can be expected to do better."
            ).format(
                _gain_number(j.oracle, "oracle", j.load), interval_words(j.oracle, results, "gain", **oracle)
            )
        )
    if j.policy != "fcfs":
        out.append(_who_pays(j, results))
    out.append(_regime(j, results))
    if facts["emulated"]:
        taus = ", ".join(f"{name} at tau {tau:.2f}" for name, tau in facts["emulated"].items())
        out.append(
            Markup(
                "<b>Emulated predictors</b>: this trace carries no scores for {}; "
                "an oracle degraded to that Kendall tau-b stands in ({})."
            ).format(taus, facts["tau_source"])
        )
    return out


def _who_pays(j: Judgement, results: Results) -> Markup:
    groups = results.groups
    if groups.is_empty():
        return Markup("")
    value = decile_cost(results, j.policy, j.load, "10", "mean_e2el_ms")
    longest = number(value, times(value), "decile-cost", policy=j.policy, load=j.load, decile=10)
    value = decile_cost(results, j.policy, j.load, "1", "mean_e2el_ms")
    shortest = number(1 / value, times(1 / value), "decile-gain", policy=j.policy, load=j.load, decile=1)
    waits = [metric_number(results, p, j.load, "max_wait_s", "s") for p in ("fcfs", j.policy)]
    return Markup(
        "Who pays: the longest tenth of responses take {} their latency under FCFS, the shortest tenth are served {} "
        "sooner; p99 latency is {} that of FCFS; the longest wait goes from {} to {}."
    ).format(longest, shortest, tail_number(j, "p99_e2el_ms"), *waits)


def decile_cost(results: Results, policy: str, load: float, group: str, column: str) -> float:
    """A decile's latency under the policy over that under FCFS, means over replicates."""
    values = []
    for name in (policy, "fcfs"):
        rows = base_rows(results, name, load)["row"].implode()
        chosen = pl.col("row").is_in(rows) & (pl.col("kind") == "decile") & (pl.col("group") == group)
        values.append(float(results.groups.filter(chosen)[column].mean() or float("nan")))  # type: ignore[arg-type]
    return values[0] / values[1] if values[1] else float("nan")


def _regime(j: Judgement, results: Results) -> Markup:
    capacity = results.facts["capacity_rps"]
    said = number(capacity, figure(capacity), "capacity")
    if j.onset is None:
        return Markup(
            "The engine sustains about {} requests/s; no queue forms at any load of this sweep, "
            "so the order of requests cannot matter."
        ).format(said)
    text = Markup("The engine sustains about {} requests/s; queueing begins near {} requests/s").format(
        said, _rate(results, j.onset)
    )
    if j.helps_from is None:
        return text + Markup("; the policy gains nothing beyond noise at any load of this sweep.")
    return text + Markup(", and {} gains from {} requests/s on.").format(
        display(results, j.policy), _rate(results, j.helps_from)
    )

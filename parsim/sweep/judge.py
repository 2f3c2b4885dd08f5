"""Does it help? The judgement at one load, as a function of intervals, from the tables of a sweep.

A gain is FCFS's metric over the policy's: 2.0 means that the policy halves it. Every claim is made only where the
whole interval supports it. Seeds may be added between looks at the same interval, so each look has its share of the
5% (Bonferroni): `facts["level"]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from parsim.stats import Interval
from parsim.sweep.results import Results

Answer = Literal[
    "helps",
    "helps the mean, hurts the tail",
    "hurts",
    "makes no difference",
    "cannot help",
    "undecided",
    "not asked",
]

HEADLINE = "mean_per_token_latency_ms"
TAILS = ("p99_ttft_ms", "p99_e2el_ms", "p99_per_token_latency_ms")
NOTICEABLE = 1.02
"""Gains below 2% are called none: no operator can see them."""
TAIL_COST = 1.05
"""A tail more than 5% longer, with its whole interval above that of FCFS, is a cost that the headline names."""
QUEUE_SHARE = 0.05
"""Queueing has begun where FCFS requests spend 5% of their latency waiting on average."""
BEST_ORDER = "oracle-weighted, unguarded"
"""A clairvoyant order without a guard, by work times response: Smith's rule for the headline metric."""
BY_RESPONSE = "oracle, unguarded"
"""The clairvoyant order by response length without a guard."""
UNGUARDED = (BEST_ORDER, BY_RESPONSE)


@dataclass(frozen=True)
class Judgement:
    """What the sweep says at one load.

    Attributes:
        answer: in one phrase.
        policy: the policy judged: the sweep's candidate (PARS), or one that is better than it beyond noise; `fcfs`
            where the sweep asks about none.
        load: the load judged.
        gain: of the policy in the headline metric.
        orders: gain of every other ranked order that was run, clairvoyant ones among them.
        clairvoyant: the clairvoyant orders among them, the best first.
        most: the most that any order can gain by the lower bound; None where there is none.
        tails: tail metric -> policy / FCFS (above 1: longer than FCFS).
        alike: what no order can tell apart: `requests` (prompts and responses are all as long as each other),
            `responses`, `scores` (of the policy judged), or nothing.
        seeds: how many runs the gain rests on.
        helps_from, not_at: lowest load from which on the policy's gain is beyond noise, and the highest load below
            it; None where there is none.
        matters_from: the same for the best order that was run, clairvoyant ones included.
        onset: the lowest load at which FCFS queues.
    """

    answer: Answer
    policy: str
    load: float
    gain: Interval
    orders: dict[str, Interval]
    clairvoyant: tuple[str, ...]
    most: Interval | None
    tails: dict[str, Interval]
    alike: Literal["requests", "responses", "scores", ""]
    seeds: int
    helps_from: float | None
    not_at: float | None
    matters_from: float | None
    onset: float | None

    @property
    def best(self) -> Interval | None:
        """What the best clairvoyant order gains; None where none was run."""
        return self.orders[self.clairvoyant[0]] if self.clairvoyant else None


def base_rows(results: Results, policy: str, load: float) -> pl.DataFrame:
    """The replicates of `policy` at `load` with the sweep's first settings; no rows where it was not run."""
    rows = results.base.get((policy, load))
    return results.results.clear() if rows is None else rows


def gain(results: Results, policy: str, load: float, metric: str = HEADLINE) -> Interval:
    """FCFS's metric over the policy's at `load`, paired; at the load of the verdict the interval allows for looks."""
    rows = base_rows(results, policy, load)
    return results.ratio(base_rows(results, "fcfs", load), rows, metric, level(results, load))


def cost(results: Results, policy: str, load: float, metric: str) -> Interval:
    """The policy's metric over FCFS's at `load`, paired."""
    return results.ratio(
        base_rows(results, policy, load), base_rows(results, "fcfs", load), metric, level(results, load)
    )


def level(results: Results, load: float) -> float:
    """The level of one look's interval, such that all looks together hold in 95%."""
    return float(results.facts["level"]) if load == results.facts["focus_load"] else 0.95


def beyond_noise(interval: Interval) -> bool:
    """Whether the whole interval lies above `NOTICEABLE`."""
    return interval.low > NOTICEABLE


def judge(results: Results, load: float | None = None) -> Judgement:
    """The judgement at `load` (default: the sweep's focus)."""
    facts = results.facts
    load = facts["focus_load"] if load is None else load
    policy = judged_policy(results, load)
    own = gain(results, policy, load)
    names = [name for name, p in facts["policies"].items() if p["ranked"]]
    run = [name for name in (*names, *UNGUARDED) if not base_rows(results, name, load).is_empty()]
    orders = {name: gain(results, name, load) for name in run}
    seen = [name for name in run if name in UNGUARDED or facts["policies"][name]["clairvoyant"]]
    clairvoyant = tuple(sorted(seen, key=lambda name: -orders[name].value))
    tails = {m: cost(results, policy, load, m) for m in TAILS} if policy != "fcfs" else {}
    most = _most(results, load)
    alike = _alike(results, policy, own)
    lowest = next(iter(facts["tau_range"]), "") if policy in facts["emulated"] else ""
    helps_from, not_at = _from(results, [policy])
    matters_from, _ = _from(results, [policy, *seen])
    return Judgement(
        answer=_answer(policy, own, orders, clairvoyant, most, tails, alike, orders.get(lowest)),
        policy=policy,
        load=load,
        gain=own,
        orders={name: value for name, value in orders.items() if name != policy},
        clairvoyant=clairvoyant,
        most=most,
        tails=tails,
        alike=alike,
        seeds=base_rows(results, policy, load).height,
        helps_from=helps_from,
        not_at=not_at,
        matters_from=matters_from,
        onset=next((x for x in results.loads if queue_share(results, x) >= QUEUE_SHARE), None),
    )


def judged_policy(results: Results, load: float) -> str:
    """The sweep's candidate, or the ranked policy that an engine can run and that is best, if better beyond noise."""
    facts = results.facts
    candidate = facts["candidate"]
    if candidate is None:
        return "fcfs"
    over = {
        name: results.ratio(
            base_rows(results, candidate, load),
            base_rows(results, name, load),
            HEADLINE,
            level(results, load),
        )
        for name, p in facts["policies"].items()
        if p["ranked"] and p["runs_in_vllm"] and name != candidate
    }
    better = {name: value for name, value in over.items() if beyond_noise(value)}
    return max(better, key=lambda name: better[name].value) if better else str(candidate)


def _answer(
    policy: str,
    own: Interval,
    orders: dict[str, Interval],
    clairvoyant: tuple[str, ...],
    most: Interval | None,
    tails: dict[str, Interval],
    alike: str,
    worst: Interval | None,
) -> Answer:
    """`worst`: gain at the lowest tau that the scores may have, where their tau is assumed."""
    if policy != "fcfs" and beyond_noise(own) and worst is not None and not beyond_noise(worst):
        return "undecided"
    if policy != "fcfs" and beyond_noise(own):
        return "helps the mean, hurts the tail" if longer(tails) else "helps"
    if policy != "fcfs" and own.high < 1 / NOTICEABLE:
        return "hurts"
    shown = BEST_ORDER in clairvoyant and all(interval.high < NOTICEABLE for interval in orders.values())
    if alike == "requests" or shown or (most is not None and most.high < NOTICEABLE):
        return "cannot help"
    if policy == "fcfs":
        return "not asked"
    if own.low > 1 / NOTICEABLE and own.high < NOTICEABLE:
        return "makes no difference"
    return "undecided"


def _alike(results: Results, policy: str, own: Interval) -> Literal["requests", "responses", "scores", ""]:
    trace = results.facts["trace"]
    if trace["equal_responses"]:
        return "requests" if trace["equal_prompts"] else "responses"
    if policy != "fcfs" and results.facts["equal_scores"].get(policy) and own.low == own.high == 1:
        return "scores"
    return ""


def _most(results: Results, load: float) -> Interval | None:
    """FCFS over the lower bound, paired by seed."""
    bound = pl.DataFrame(
        [entry for entry in results.facts["bound"] if entry["load"] == load],
        schema={"load": pl.Float64, "seed": pl.Int64, HEADLINE: pl.Float64},
    )
    rows = base_rows(results, "fcfs", load)
    if bound.is_empty() or not bound[HEADLINE].is_finite().all():
        return None
    return results.ratio(rows, bound, HEADLINE, level(results, load))


def _from(results: Results, policies: list[str]) -> tuple[float | None, float | None]:
    """The lowest load at which one of the policies gains beyond noise, and the highest below it that was run."""
    below = None
    for load in results.loads:
        run = [p for p in policies if not base_rows(results, p, load).is_empty()]
        if any(beyond_noise(gain(results, p, load)) for p in run):
            return load, below
        below = load if run else below
    return None, None


def longer(tails: dict[str, Interval]) -> list[str]:
    """The tail metrics that are longer than under FCFS beyond noise, the worst first."""
    names = [m for m, t in tails.items() if t.low > 1 and t.value > TAIL_COST]
    return sorted(names, key=lambda m: -tails[m].value)


def queue_share(results: Results, load: float) -> float:
    """Mean queueing time over mean latency of FCFS at `load`."""
    rows = base_rows(results, "fcfs", load)
    return float(rows["mean_queue_ms"].mean() or 0.0) / max(float(rows["mean_e2el_ms"].mean() or 0.0), 1e-12)  # type: ignore[arg-type]

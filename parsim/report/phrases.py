"""Numbers and names as people say them; every number carries what it is."""

from __future__ import annotations

from markupsafe import Markup

from parsim.report.page import figure, number
from parsim.report.verdict import HEADLINE, Judgement, mean_of
from parsim.stats import Interval
from parsim.sweep.results import Results

NAMES = {
    "fcfs": "FCFS",
    "oracle": "Oracle SJF",
    "oracle-work": "Oracle work",
    "oracle-weighted": "Oracle weighted work",
    "pars": "PARS",
    "pars-cross": "PARS-cross",
    "pars-plus": "PARS-plus",
}
METRIC_WORDS = {
    "p99_e2el_ms": "p99 latency",
    "p99_ttft_ms": "p99 time to first token",
    "p99_per_token_latency_ms": "p99 latency per token",
}


FLOOD = 10
"""From this many times the capacity on a share of it tells nothing any more."""


def display(results: Results, policy: str) -> str:
    """The policy's label as people say it: emulated predictors always say so."""
    facts = results.facts["policies"].get(policy)
    label: str = facts["label"] if facts else policy
    return label.replace(policy, NAMES.get(policy, policy), 1)


def times(value: float) -> str:
    return f"{figure(value)}x"


UNSEEN = 0.005
"""Intervals that lie within this of 1 are told as no difference: their three figures are all 1.00."""


def unchanged(interval: Interval) -> bool:
    """Whether nothing changes that three figures could show."""
    return interval.known and interval.low > 1 - UNSEEN and interval.high < 1 + UNSEEN


def rate_number(results: Results, load: float) -> Markup:
    rate = load * results.facts["trace"]["rate_rps"]
    return number(rate, figure(rate), "rate", load=load)


def share_number(results: Results, load: float) -> Markup:
    share = load * results.facts["trace"]["rate_rps"] / results.facts["capacity_rps"]
    return number(share, f"{share:.0%}", "share of capacity", load=load)


def where(results: Results, load: float) -> Markup:
    """The load, how long it lasts, and how much that is for the engine."""
    trace = results.facts["trace"]
    if trace["span_s"] == 0:
        return Markup("with all {} requests arriving at once").format(f"{trace['requests']:,}")
    lasts = trace["span_s"] / load
    text = Markup("at load {} ({} requests/s for {}").format(
        f"{load:g}", rate_number(results, load), number(lasts, seconds_words(lasts), "lasts", load=load)
    )
    if results.facts["capacity"]["known"]:
        if load * trace["rate_rps"] > FLOOD * results.facts["capacity_rps"]:
            return text + Markup(", far more than the engine sustains: a flood)")
        text += Markup(", {} of what the engine sustains").format(share_number(results, load))
    return text + Markup(")")


def at_rate(results: Results, load: float) -> str:
    """The load in a section's lead: its rate, or that all arrive at once."""
    trace = results.facts["trace"]
    if trace["span_s"] == 0:
        return f"With all {trace['requests']:,} requests arriving at once"
    return f"At {load * trace['rate_rps']:.3g} requests/s"


def guard_words(threshold: float | None) -> str:
    return "no starvation guard" if threshold is None else f"a starvation guard at {threshold:g} s"


def score_words(results: Results, policy: str) -> Markup:
    """Whose scores, and how well they rank; empty where the order needs none."""
    facts = results.facts["policies"][policy]
    if facts["emulated_tau"] is not None:
        return Markup(" and emulated scores of tau {}, assumed").format(f"{facts['emulated_tau']:.2f}")
    tau = results.facts["score_taus"].get(policy)
    if tau is None:
        return Markup("")
    if tau != tau:
        return Markup(" and the trace's own scores, whose tau is undefined")
    return Markup(" and the trace's own scores of tau {}").format(
        number(tau, f"{tau:.2f}", "tau", policy=policy)
    )


def gain_number(interval: Interval, policy: str, load: float, metric: str = HEADLINE) -> Markup:
    return number(interval.value, times(interval.value), "gain", policy=policy, load=load, metric=metric)


def tail_number(j: Judgement, metric: str) -> Markup:
    """How much longer the policy's tail is than FCFS's."""
    value = j.tails[metric].value
    return number(value, times(value), "cost", policy=j.policy, load=j.load, metric=metric)


def interval_words(interval: Interval, results: Results, what: str, seeds: int, **facts: object) -> Markup:
    """`95% interval a to b, ...`, or that there is none."""
    if not interval.known:
        return Markup("one run, so no interval")
    how = (
        "paired seeds"
        if results.facts["trace"]["redrawn"]
        else "runs: the trace, and its requests drawn again"
    )
    return Markup("95% interval {} to {}, {} {}").format(
        number(interval.low, times(interval.low), f"{what}-low", **facts),
        number(interval.high, times(interval.high), f"{what}-high", **facts),
        seeds,
        how,
    )


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

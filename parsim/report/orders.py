"""The orders of a sweep in words: what they cannot tell apart, what each gains, clairvoyant ones among them."""

from __future__ import annotations

import math

import polars as pl
from markupsafe import Markup

from parsim.report.page import number
from parsim.report.phrases import display, gain_number, guard_words, interval_words, times, unchanged
from parsim.report.verdict import BEST_ORDER, BY_RESPONSE, HEADLINE, NOTICEABLE, Judgement, base_rows
from parsim.sweep.results import Results


def alike(j: Judgement, results: Results) -> Markup:
    """What no order can tell apart."""
    if j.alike == "scores":
        return Markup(
            "{} is FCFS here: all its scores are equal, so that it serves in order of arrival."
        ).format(display(results, j.policy))
    if results.facts["trace"]["equal_responses"]:
        tokens = results.facts["trace"]["mean_output_tokens"]
        return Markup(
            "All responses have {} token{}: no order by response length can differ from FCFS, and tau is undefined."
        ).format(f"{tokens:,.0f}", "" if tokens == 1 else "s")
    return Markup("")


def backwards(j: Judgement, results: Results) -> Markup:
    """Scores that rank the wrong way round."""
    tau = results.facts["score_taus"].get(j.policy)
    if tau is None or not tau < 0 or j.policy not in results.facts["policies"]:
        return Markup("")
    return Markup(
        "The scores of {} rank the wrong way round: their tau with the response lengths is {}, below 0."
    ).format(display(results, j.policy), number(tau, f"{tau:.2f}", "tau", policy=j.policy))


def others(j: Judgement, results: Results) -> Markup:
    """The other orders that an engine can run."""
    rest = [n for n in j.orders if n not in j.clairvoyant]
    if not rest:
        return Markup("")
    parts = [
        Markup("{} none").format(display(results, name))
        if unchanged(j.orders[name])
        else Markup("{} {} ({} to {})").format(
            display(results, name),
            gain_number(j.orders[name], name, j.load),
            *(
                number(end, times(end), f"gain-{side}", policy=name, load=j.load, metric=HEADLINE)
                for side, end in (("low", j.orders[name].low), ("high", j.orders[name].high))
            ),
        )
        for name in rest
    ]
    return Markup("Gains of the other orders, with 95% intervals: {}.").format(Markup(", ").join(parts))


def clairvoyants(j: Judgement, results: Results) -> Markup:
    """What orders that know the lengths gain, and what no order can gain more than; nothing where none was run."""
    parts = []
    for name in j.clairvoyant:
        if unchanged(j.orders[name]):
            parts.append(Markup("{} gains nothing").format(_clairvoyant_name(results, name)))
            continue
        known = {"policy": name, "load": j.load, "metric": HEADLINE}
        seeds = base_rows(results, name, j.load).height
        parts.append(
            Markup("{} gains {} ({})").format(
                _clairvoyant_name(results, name),
                gain_number(j.orders[name], name, j.load),
                interval_words(j.orders[name], results, "gain", seeds, **known),
            )
        )
    if not parts:
        return Markup("")
    text = Markup("Orders that know every length: {}.").format(Markup("; ").join(parts))
    if j.most is not None and j.best is not None and j.most.value > max(j.best.value, 1):
        text += Markup(" No schedule can gain more than {} (lower bound on the latency).").format(
            number(j.most.value, times(j.most.value), "most", load=j.load)
        )
    return text + _no_bound(j, results)


def _clairvoyant_name(results: Results, name: str) -> str:
    if name == BEST_ORDER:
        return "by prompt and response, no guard,"
    if name == BY_RESPONSE:
        return "by response, no guard,"
    guard = guard_words(results.facts["policies"][name]["starvation_threshold_s"])
    return f"{display(results, name)}, {guard},"


def _no_bound(j: Judgement, results: Results) -> Markup:
    """Where the order by response length is no bound, since prompts are work too."""
    if BY_RESPONSE not in j.orders or BEST_ORDER not in j.orders:
        return Markup("")
    by_response, by_work = (base_rows(results, name, j.load) for name in (BY_RESPONSE, BEST_ORDER))
    if not results.ratio(by_response, by_work, HEADLINE).low > NOTICEABLE:
        return Markup("")
    return Markup(
        " Prompts are much of the work here: ordering by prompt and response beats ordering by response alone, so "
        "that Oracle SJF by response length is no bound for a predictor of the work."
    )


def centre(j: Judgement, results: Results) -> str:
    """What the value of the gain is the mean of (`Results.ratio`)."""
    if results.facts["trace"]["redrawn"]:
        return (
            "the geometric mean of the runs' own ratios, in which long queues count no more than short ones"
        )
    first = pl.col("seed") == results.facts["seeds"][0]
    fcfs, own = (base_rows(results, p, j.load).filter(first)[HEADLINE].item() for p in ("fcfs", j.policy))
    if math.isclose(fcfs / own, j.gain.value):
        return "that of the trace itself, from which its requests drawn again differ"
    return (
        "the geometric mean of the ratios over its requests drawn again, in which long queues count no more"
    )

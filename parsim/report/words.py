"""The answer in words: every sentence is a function of intervals and names its load, how long it lasts, the guard and
whose scores it speaks of. What is not shown is never said to be shown not to be."""

from __future__ import annotations

import math

from markupsafe import Markup

from parsim.report.advice import (
    adds,
    changes_engine,
    is_default,
    is_judged,
    is_trying,
    lasting,
    recommended,
    waits_for,
)
from parsim.report.orders import alike, backwards, centre, clairvoyants, others
from parsim.report.page import figure, number
from parsim.report.phrases import (
    METRIC_WORDS,
    display,
    gain_number,
    guard_words,
    interval_words,
    metric_number,
    rate_number,
    score_words,
    tail_number,
    times,
    unchanged,
    where,
)
from parsim.report.verdict import (
    HEADLINE,
    NOTICEABLE,
    QUEUE_SHARE,
    Judgement,
    decile_cost,
    longer,
    mean_of,
    queue_share,
    shared_seeds,
)
from parsim.stats import Interval
from parsim.sweep.results import Results

MANY_PROMOTED = 0.1
"""The share of promoted requests from which the guard shapes the result."""
APART = 1.05
"""Means whose ratio is further than this from the gain are told with that ratio."""
NOBODY_WAITS = 0.01
"""FCFS requests that wait less than this share of their latency are said not to wait."""


def headline(j: Judgement, results: Results) -> Markup:
    """The answer in one sentence, about the very command that is printed beside it."""
    plain = is_default(results) and not j.answer.startswith("helps")
    if is_trying(results) or is_judged(results, j.policy) or plain:
        return verdict(j, results)
    return recommended(results) + adds(results)


def verdict(j: Judgement, results: Results) -> Markup:
    """Whether the order judged helps, in one sentence."""
    name, place = display(results, j.policy), where(results, j.load)
    own = {"policy": j.policy, "load": j.load, "metric": HEADLINE}
    sure = interval_words(j.gain, results, "gain", j.seeds, **own)
    gained = gain_number(j.gain, j.policy, j.load)
    terms = Markup("with {}{}").format(
        guard_words(results.facts["policies"][j.policy]["starvation_threshold_s"]),
        score_words(results, j.policy),
    )
    match j.answer:
        case "helps":
            return Markup("{} helps {}: mean latency per token {} lower than FCFS ({}), {}.").format(
                name, place, gained, sure, terms
            )
        case "helps the mean, hurts the tail":
            worst = longer(j.tails)[0]
            return Markup(
                "{} helps the mean but hurts the tail {}: mean latency per token {} lower than FCFS ({}), "
                "{} {} as long, {}."
            ).format(name, place, gained, sure, METRIC_WORDS[worst], tail_number(j, worst), terms)
        case "hurts":
            return Markup(
                "{} hurts {}: mean latency per token is {} that of FCFS (its gain: {}), {}."
            ).format(name, place, loss(j), sure, terms)
        case "makes no difference" if unchanged(j.gain):
            return Markup("{} makes no difference {}: its mean latency per token is FCFS's, {}.").format(
                name, place, terms
            )
        case "makes no difference":
            return Markup(
                "{} makes no difference {}: its mean latency per token is within 2% of FCFS's (gain {}; {}), {}."
            ).format(name, place, gained, sure, terms)
        case "cannot help":
            return Markup("No order of the requests can help {}: {}.").format(place, _why_none(j, results))
        case "not asked":
            return Markup(
                "No order that an engine can run was asked about {}; FCFS is what was measured."
            ).format(place)
        case _:
            return Markup("Undecided {}: {} has a gain of {} over FCFS ({}), {}.").format(
                place, name, gained, sure, terms
            )


def loss(j: Judgement) -> Markup:
    """How many times FCFS's latency the policy's is."""
    value = 1 / j.gain.value
    return number(value, times(value), "loss", policy=j.policy, load=j.load, metric=HEADLINE)


def _why_none(j: Judgement, results: Results) -> Markup:
    """What shows that no order can help."""
    if j.alike == "requests":
        return Markup(
            "all requests are alike, so that all orders are one; a tau of their lengths is undefined"
        )
    if j.most is not None and j.most.high < NOTICEABLE:
        return Markup("a bound that holds for every schedule lies within {} of FCFS").format(
            number(j.most.high, times(j.most.high), "most-high", load=j.load)
        )
    best = j.best or Interval(math.nan, math.nan, math.nan)
    high = number(
        best.high, times(best.high), "gain-high", policy=j.clairvoyant[0], load=j.load, metric=HEADLINE
    )
    return Markup("even the best clairvoyant order gains at most {} (95%){}").format(high, _idle(j, results))


def _idle(j: Judgement, results: Results) -> Markup:
    share = queue_share(results, j.load)
    if share >= NOBODY_WAITS:
        return Markup("")
    return Markup("; nobody waits (FCFS requests spend {} of their latency waiting)").format(
        number(share, f"{share:.1%}", "queue share", load=j.load)
    )


def sentences(j: Judgement, results: Results) -> list[Markup]:
    """By how much and how sure; what would decide it; who pays; where it begins; what else is known."""
    first = headline(j, results)
    judged = verdict(j, results)
    if judged != first and changes_engine(results):
        judged = Markup("On the unchanged engine: {}").format(judged)
    out = [s for s in (judged, recommended(results)) if s and not first.startswith(s)]
    if j.answer == "undecided":
        out.append(decides(j, results))
    out += [alike(j, results), backwards(j, results)]
    if j.policy != "fcfs":
        out.append(_means(j, results))
    out += [others(j, results), clairvoyants(j, results)]
    if j.policy != "fcfs":
        out += [_who_pays(j, results), _guard(j, results)]
    out += [capacity(results), regime(j, results), *waits_for(j, results), lasting(j, results)]
    if results.facts["emulated"]:
        taus = ", ".join(f"{name} at tau {tau:.2f}" for name, tau in results.facts["emulated"].items())
        out.append(
            Markup(
                "<b>Emulated predictors</b>: this trace carries no scores for {}; "
                "an oracle degraded to that Kendall tau-b stands in ({})."
            ).format(taus, results.facts["tau_source"])
        )
    if results.facts["left_out"]:
        out.append(
            Markup("Not shown, since without scores each would be the same emulation: {}.").format(
                ", ".join(results.facts["left_out"])
            )
        )
    return [sentence for sentence in out if sentence]


def _means(j: Judgement, results: Results) -> Markup:
    """The latencies behind the gain, of the same runs; where their ratio is another figure, why."""
    fcfs, own = (mean_of(results, policy, j.load, HEADLINE) for policy in ("fcfs", j.policy))
    text = Markup("Mean latency per token over the same {} runs: FCFS {}, {} {}").format(
        len(shared_seeds(results, j.load)),
        metric_number(results, "fcfs", j.load, HEADLINE, "ms"),
        display(results, j.policy),
        metric_number(results, j.policy, j.load, HEADLINE, "ms"),
    )
    if not abs(math.log(fcfs / own / j.gain.value)) > math.log(APART):
        return text + Markup(".")
    return text + Markup(". These means have the ratio {}; the gain of {} is {}.").format(
        number(fcfs / own, times(fcfs / own), "ratio of means", policy=j.policy, load=j.load),
        gain_number(j.gain, j.policy, j.load),
        centre(j, results),
    )


def decides(j: Judgement, results: Results) -> Markup:
    """What would decide an undecided verdict: how many seeds, or how long a trace."""
    lowest = next(iter(results.facts["tau_range"]), "")
    if lowest in j.orders and j.gain.low > NOTICEABLE:
        return Markup(
            "What would decide it: the predictor. It helps at the tau that is assumed, and is not shown to at {}; "
            "score the trace's prompts (parsim score) and sweep again."
        ).format(display(results, lowest))
    low, high = math.log(j.gain.low), math.log(j.gain.high)
    edges = [abs(math.log(j.gain.value) - math.log(edge)) for edge in (NOTICEABLE, 1 / NOTICEABLE)]
    short = (max(high - low, 1e-12) / 2 / max(min(edges), 1e-3)) ** 2 if j.gain.known else math.inf
    if not math.isfinite(short) or short > 100:
        return Markup("What would decide it: hardly anything; the gain lies too close to the 2% that count.")
    if results.facts["trace"]["redrawn"]:
        count = math.ceil(j.seeds * short)
        return Markup("What would decide it: about {} seeds (most_seeds in the sweep file; now {}).").format(
            f"{count:,}", results.facts["looks"][-1]
        )
    longer_by = max(short, 1.0)
    return Markup("What would decide it: a longer recording, about {} as many requests ({} now).").format(
        times(longer_by), f"{results.facts['trace']['requests']:,}"
    )


def _who_pays(j: Judgement, results: Results) -> Markup:
    if results.groups.is_empty() or results.facts["trace"]["equal_responses"]:
        return Markup("")
    value = decile_cost(results, j.policy, j.load, "10", "mean_e2el_ms")
    longest = number(value, times(value), "decile-cost", policy=j.policy, load=j.load, decile=10)
    value = decile_cost(results, j.policy, j.load, "1", "mean_e2el_ms")
    shortest = number(value, times(value), "decile-cost", policy=j.policy, load=j.load, decile=1)
    waits = [metric_number(results, p, j.load, "max_wait_s", "s") for p in ("fcfs", j.policy)]
    return Markup(
        "Who pays: the longest tenth of responses take {} their latency under FCFS, the shortest tenth {}; "
        "p99 latency is {} that of FCFS; the longest wait is {} under FCFS and {} under {}."
    ).format(longest, shortest, tail_number(j, "p99_e2el_ms"), *waits, display(results, j.policy))


def _guard(j: Judgement, results: Results) -> Markup:
    """Where the starvation guard undoes the ranking, say so."""
    threshold = results.facts["policies"][j.policy]["starvation_threshold_s"]
    share = mean_of(results, j.policy, j.load, "promoted") / mean_of(results, j.policy, j.load, "completed")
    if threshold is None or not share >= MANY_PROMOTED:
        return Markup("")
    told = number(share, f"{share:.0%}", "promoted share", policy=j.policy, load=j.load)
    return Markup(
        "The starvation guard ({} s) promoted {} of the requests: among the promoted the order is first come first "
        "served again."
    ).format(f"{threshold:g}", told)


def capacity(results: Results) -> Markup:
    """What the engine sustains of this mix, or that it cannot be told."""
    known = results.facts["capacity"]
    if not known["known"]:
        if known["rows"] is None:
            return Markup(
                "What the engine sustains cannot be told: no stationary run of this mix was reached."
            )
        return Markup("What the engine sustains cannot be told from {} requests.").format(
            f"{known['rows']:,}"
        )
    ends = [number(known[side], figure(known[side]), f"capacity {side}") for side in ("low", "high")]
    return Markup(
        "The engine sustains {} requests/s of this mix (95% {} to {}; a run whose queue never empties)."
    ).format(number(known["rps"], figure(known["rps"]), "capacity"), *ends)


def regime(j: Judgement, results: Results) -> Markup:
    """From which load on the order of requests begins to matter."""
    if results.facts["trace"]["span_s"] == 0:
        return Markup("A burst has a size, no rate: there is no load from which on order begins to matter.")
    if j.matters_from is None:
        return Markup(
            "Order gains nothing that is shown at any load that was run, up to {} requests/s."
        ).format(rate_number(results, results.loads[-1]))
    text = Markup("Order begins to matter from {} requests/s (load {}) on: ").format(
        rate_number(results, j.matters_from), figure(j.matters_from)
    )
    if j.policy == "fcfs":
        text += Markup("there an order that knows every length gains more than 2%")
    elif j.helps_from is None:
        text += Markup(
            "there an order that knows every length gains more than 2%; {} gains nothing that is shown"
        ).format(display(results, j.policy))
    else:
        text += Markup("{} gains from {} requests/s on").format(
            display(results, j.policy), rate_number(results, j.helps_from)
        )
        if j.not_at is not None:
            text += Markup(", not shown at {}").format(rate_number(results, j.not_at))
    if j.onset is not None:
        text += Markup("; FCFS requests wait {} of their latency from {} requests/s on").format(
            f"{QUEUE_SHARE:.0%}", rate_number(results, j.onset)
        )
    return text + Markup(".")

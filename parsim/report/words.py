"""The answer in words."""

from __future__ import annotations

import polars as pl
from markupsafe import Markup

from parsim.report.page import figure, number
from parsim.report.phrases import (
    METRIC_WORDS,
    display,
    gain_number,
    interval_words,
    metric_number,
    rate_number,
    seconds_words,
    share_number,
    tail_number,
    times,
)
from parsim.report.verdict import (
    HEADLINE,
    QUEUE_SHARE,
    Judgement,
    base_rows,
    decile_cost,
    longer,
    mean_of,
    queue_share,
)
from parsim.sweep.choose import EQUAL
from parsim.sweep.results import Results

MANY_PROMOTED = 0.1
"""The share of promoted requests from which the guard shapes the result."""


def headline(j: Judgement, results: Results) -> Markup:
    """The answer in one sentence."""
    name = display(results, j.policy)
    where = Markup("at {} requests/s ({} of capacity)").format(
        rate_number(results, j.load), share_number(results, j.load)
    )
    gained = gain_number(j.gain, j.policy, j.load)
    match j.answer:
        case "helps":
            return Markup("{} helps: mean latency per token {} lower than FCFS {}.").format(
                name, gained, where
            )
        case "helps the mean, hurts the tail":
            worst = longer(j.tails)[0]
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
                gain_number(j.gain, j.policy, j.load),
                interval_words(j.gain, results, "gain", **own),
            )
        )
    if j.oracle is not None:
        oracle = {"policy": "oracle", "load": j.load, "metric": HEADLINE}
        out.append(
            Markup(
                "Oracle SJF, which knows every length, gains {}{}: no predictor can be expected to do better."
            ).format(
                gain_number(j.oracle, "oracle", j.load), interval_words(j.oracle, results, "gain", **oracle)
            )
        )
        if j.policy not in ("fcfs", "oracle"):
            behind = results.ratio(
                base_rows(results, j.policy, j.load), base_rows(results, "oracle", j.load), HEADLINE
            )
            out.append(
                Markup("{} comes to {} of the Oracle's latency per token{}.").format(
                    display(results, j.policy),
                    number(behind.value, times(behind.value), "behind", **own),
                    interval_words(behind, results, "behind", **own),
                )
            )
    if j.policy != "fcfs":
        out += [_who_pays(j, results), _guard(j, results)]
    out += [regime(j, results), what_would(j, results), without_ranking(j, results)]
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


def _guard(j: Judgement, results: Results) -> Markup:
    """Where the starvation guard undoes the ranking, say so."""
    threshold = results.facts["policies"][j.policy]["starvation_threshold_s"]
    share = mean_of(results, j.policy, j.load, "promoted") / mean_of(results, j.policy, j.load, "completed")
    if threshold is None or not share >= MANY_PROMOTED:
        return Markup("")
    told = number(share, f"{share:.0%}", "promoted share", policy=j.policy, load=j.load)
    return Markup(
        "The starvation guard ({} s) promoted {} of the requests: past it the order is first come again."
    ).format(f"{threshold:g}", told)


def regime(j: Judgement, results: Results) -> Markup:
    """What the engine sustains, where queueing begins and where the policy begins to gain."""
    capacity = results.facts["capacity_rps"]
    said = number(capacity, figure(capacity), "capacity")
    if j.onset is None:
        return Markup(
            "The engine sustains about {} requests/s; no queue forms at any load of this sweep, "
            "so the order of requests cannot matter."
        ).format(said)
    text = Markup("The engine sustains about {} requests/s; queueing begins near {} requests/s").format(
        said, rate_number(results, j.onset)
    )
    if j.helps_from is None:
        return text + Markup("; the policy gains nothing beyond noise at any load of this sweep.")
    text += Markup(", and {} gains from {} requests/s on.").format(
        display(results, j.policy), rate_number(results, j.helps_from)
    )
    return text + shortage(results)


def what_would(j: Judgement, results: Results) -> Markup:
    """Where no order can help: what latency is made of, and so what would."""
    if j.answer != "cannot help":
        return Markup("")
    parts = latency_parts(results, j.load)
    told = [number(x, f"{x:.0%}", "share of latency", part=name, load=j.load) for name, x in parts.items()]
    cure = {
        "waiting": "more slots or KV memory, or another replica",
        "prefill": "a larger token budget, prefix caching or shorter prompts",
        "decoding": "a faster card or model, smaller batches or shorter responses",
    }[max(parts, key=lambda name: parts[name])]
    return Markup(
        "Latency under FCFS is {} waiting, {} prefill and {} decoding. What would help: {}."
    ).format(*told, cure)


def latency_parts(results: Results, load: float) -> dict[str, float]:
    """Shares of the mean E2E latency of FCFS: waiting for a slot, from there to the first token, decoding."""
    queue, ttft, e2el = (
        mean_of(results, "fcfs", load, f"mean_{name}_ms") for name in ("queue", "ttft", "e2el")
    )
    return {"waiting": queue / e2el, "prefill": (ttft - queue) / e2el, "decoding": (e2el - ttft) / e2el}


def shortage(results: Results) -> Markup:
    """What the waiting requests of FCFS wait for at the load of the verdict: a slot or KV blocks."""
    if results.series.is_empty():
        return Markup("")
    queued = results.series.filter(pl.col("policy") == "fcfs", pl.col("waiting") > 0)
    if queued.is_empty():
        return Markup("")
    seqs = results.facts["engine"]["max_num_seqs"]
    slots = float((queued["running"] >= seqs).mean())
    peak = float(queued["kv_usage"].max())  # type: ignore[arg-type]
    used = number(peak, f"{peak:.0%}", "peak kv usage")
    if slots > 0.5:
        return Markup(" What is short is slots (max_num_seqs {}): KV use peaks at {}.").format(seqs, used)
    if peak > 0.9:
        return Markup(" What is short is KV memory: its use peaks at {}.").format(used)
    return Markup("")


def without_ranking(j: Judgement, results: Results) -> Markup:
    """What FCFS reaches with other settings: the cure that needs no predictor."""
    rows = results.select("search", policy="fcfs", load=j.load)
    if rows.is_empty() or queue_share(results, j.load) < QUEUE_SHARE:
        return Markup("")
    best = (
        rows.group_by("max_num_seqs", "max_num_batched_tokens", maintain_order=True)
        .agg(pl.col(HEADLINE).mean())
        .sort(HEADLINE)
        .row(0, named=True)
    )
    own = mean_of(results, "fcfs", j.load, HEADLINE)
    if best[HEADLINE] > own * (1 - EQUAL):
        return Markup("Without ranking: no batch limits that were tried make FCFS faster.")
    seqs, tokens = best["max_num_seqs"], best["max_num_batched_tokens"]
    reached = number(
        best[HEADLINE],
        seconds_words(best[HEADLINE] / 1e3),
        "fcfs-search",
        load=j.load,
        seqs=seqs,
        tokens=tokens,
    )
    text = Markup(
        "Without ranking: FCFS with max_num_seqs {} and max_num_batched_tokens {} reaches {} per token"
    ).format(figure(seqs), figure(tokens), reached)
    if best[HEADLINE] <= mean_of(results, j.policy, j.load, HEADLINE) * (1 + EQUAL):
        return text + Markup(", as good as ranking and without a predictor.")
    return text + Markup(".")

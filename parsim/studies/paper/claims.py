"""The paper's claims beside what was found, and where each holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from parsim.defaults import DEFAULT_STARVATION_THRESHOLD_S
from parsim.report.page import figure
from parsim.report.phrases import times
from parsim.report.verdict import base_rows, gain, mean_of
from parsim.stats import Interval
from parsim.studies.paper.regime_page import MEAN, P90, summary
from parsim.studies.paper.spec import PAPER_TAU
from parsim.sweep.results import Results

Outcome = Literal[
    "reached", "reached in overload only", "reached on other engines only", "not reached", "not testable here"
]
AT_PAPER_TAU = f"emulated(tau={PAPER_TAU:g})"


@dataclass(frozen=True)
class Claim:
    """One row: what the paper says, what was found, and where it holds."""

    claim: str
    found: str
    holds: str
    outcome: Outcome


def claims(done: dict[str, Results], regimes: pl.DataFrame) -> list[Claim]:
    """All rows, from the results of `run_paper` and `run_regimes`."""
    llama, r1 = done["llama-poisson"], done["r1-poisson"]
    mean_words, p90_words, burst_words = (
        "Mean latency per token up to 15.7x lower than FCFS (Llama 3.1, Poisson)",
        "p90 latency per token up to 12.3x lower (Llama 3.1, Poisson)",
        "Up to 7.7x lower with a burst of 2,000 (Llama 3.1)",
    )
    factors = (
        (_factor(llama, mean_words, 15.7), (MEAN, False, 15.7)),
        (_factor(llama, p90_words, 12.3, P90), (P90, False, 12.3)),
        (_burst(done["llama-burst"], burst_words, 7.7), (MEAN, True, 7.7)),
    )
    return [
        *(_elsewhere(claim, regimes, *where) for claim, where in factors),
        _factor(r1, "More than 2x lower on DeepSeek-R1 (Poisson)", 2.0),
        _burst(done["r1-burst"], "More than 2x lower on DeepSeek-R1 with a burst of 2,000", 2.0),
        _throughput(done),
        _near_oracle(llama),
        _cross(llama),
        _overhead(llama),
        *_ranking(llama),
    ]


def _elsewhere(claim: Claim, regimes: pl.DataFrame, metric: str, burst: bool, factor: float) -> Claim:
    """The claim with the regimes of other engines in which its factor arises."""
    where = summary(regimes, metric, burst, factor)
    if not where:
        return replace(claim, holds=f"{claim.holds}; on no engine of the map either")
    outcome: Outcome = "reached on other engines only" if claim.outcome == "not reached" else claim.outcome
    return replace(claim, holds=f"default engine: {claim.holds}. On the map: {where}", outcome=outcome)


def best(results: Results, policy: str, metric: str) -> tuple[float, Interval]:
    """The load with the largest gain of `policy` in `metric`, and that gain."""
    gains = {load: gain(results, policy, load, metric) for load in results.facts["loads"]}
    load = max(gains, key=lambda x: gains[x].value)
    return load, gains[load]


def percent(results: Results, load: float) -> str:
    return f"{load * results.facts['trace']['rate_rps'] / results.facts['capacity_rps']:.0%} of capacity"


def told(interval: Interval) -> str:
    if not interval.known:
        return times(interval.value)
    return f"{times(interval.value)} [{figure(interval.low)}, {figure(interval.high)}]"


def _label(results: Results, policy: str) -> str:
    label: str = results.facts["policies"][policy]["label"]
    return label


def _factor(results: Results, claim: str, factor: float, metric: str = "mean_per_token_latency_ms") -> Claim:
    """A factor under Poisson arrivals: at the best load, at the paper's best tau, and where it is first reached."""
    load, pars = best(results, "pars", metric)
    top_load, top = best(results, AT_PAPER_TAU, metric)
    found = (
        f"{_label(results, 'pars')}: {told(pars)} at {percent(results, load)}; "
        f"emulated at the paper's best tau {PAPER_TAU}: {told(top)} at {percent(results, top_load)}"
    )
    below = [
        x
        for x in results.facts["loads"]
        if x * results.facts["trace"]["rate_rps"] <= results.facts["capacity_rps"]
    ]
    steady = max((gain(results, "pars", x, metric).value for x in below), default=float("nan"))
    first = next(
        (x for x in results.facts["loads"] if gain(results, "pars", x, metric).value >= factor), None
    )
    within = f"at or below capacity the gain is at most {times(steady)}"
    if first is None:
        return Claim(
            claim,
            found,
            f"at no load of this sweep; {within}",
            "not reached",
        )
    outcome: Outcome = "reached" if first in below else "reached in overload only"
    return Claim(claim, found, f"from {percent(results, first)} on; {within}", outcome)


def _burst(results: Results, claim: str, factor: float) -> Claim:
    pars, top, oracle = (gain(results, p, 1.0) for p in ("pars", AT_PAPER_TAU, "oracle"))
    found = (
        f"{_label(results, 'pars')}: {told(pars)}; at tau {PAPER_TAU}: {told(top)}; Oracle SJF {told(oracle)}"
    )
    reached = pars.value >= factor
    holds = "at once, on the default engine" if reached else "not with these lengths on the default engine"
    if not reached and top.value >= factor:
        holds = f"only with a ranking as good as tau {PAPER_TAU}"
    return Claim(claim, found, holds, "reached" if reached else "not reached")


def _throughput(done: dict[str, Results]) -> Claim:
    """Throughput of PARS over FCFS at the highest load of every experiment."""
    ratios = {
        name: results.ratio(
            base_rows(results, "pars", results.facts["loads"][-1]),
            base_rows(results, "fcfs", results.facts["loads"][-1]),
            "output_throughput",
        )
        for name, results in done.items()
        if not name.startswith("backlog")
    }
    worst = min(ratios.values(), key=lambda r: r.value)
    found = "; ".join(f"{name} {told(ratio)}" for name, ratio in ratios.items())
    kept = worst.value >= 0.98
    holds = "everywhere tried, within 2%" if kept else f"not everywhere: {times(worst.value)} at worst"
    return Claim("Throughput kept or slightly better", found, holds, "reached" if kept else "not reached")


def _near_oracle(results: Results) -> Claim:
    shares = {
        load: results.ratio(
            base_rows(results, "pars", load), base_rows(results, "oracle", load), "mean_per_token_latency_ms"
        )
        for load in results.facts["loads"]
    }
    far = max(shares, key=lambda load: shares[load].value)
    near = shares[far].value <= 1.2
    where = percent(results, far)
    found = (
        f"{_label(results, 'pars')} takes {told(shares[far])} of Oracle SJF's mean at {where}, less elsewhere"
    )
    return Claim(
        "Close to Oracle SJF",
        found,
        "within 20% at every load" if near else "not in deep overload",
        "reached" if near else "not reached",
    )


def _cross(results: Results) -> Claim:
    claim = "A predictor trained on another model's lengths is on a par with listwise"
    if {"pars-cross", "listwise"} & set(results.facts["emulated"]):
        return Claim(
            claim,
            "the bundled trace carries no such scores",
            "emulated predictors cannot answer this",
            "not testable here",
        )
    load, _ = best(results, "oracle", "mean_per_token_latency_ms")
    ratio = results.ratio(
        base_rows(results, "listwise", load),
        base_rows(results, "pars-cross", load),
        "mean_per_token_latency_ms",
    )
    par = ratio.value >= 0.95
    found = f"listwise / cross-model mean latency per token: {told(ratio)} at {percent(results, load)}"
    return Claim(claim, found, "on the bundled trace, real scores", "reached" if par else "not reached")


def _overhead(results: Results) -> Claim:
    claim = "Scoring and sorting take about 0.08% of serving time"
    load, _ = best(results, "pars", "mean_per_token_latency_ms")
    spent_s = mean_of(results, "pars", load, "scoring_s_per_request")
    share = spent_s / mean_of(results, "pars", load, "mean_e2el_ms") * 1e3
    found = (
        f"scoring: {spent_s * 1e3:.3g} ms of CPU a request, {share:.2%} of its mean latency at "
        f"{percent(results, load)} ({results.facts['scoring_cost']}), charged to the runs; sorting is part of the "
        "engine's step"
    )
    return Claim(
        claim, found, "one CPU core beside the engine", "reached" if share <= 0.001 else "not reached"
    )


def _ranking(results: Results) -> list[Claim]:
    taus = results.facts.get("score_taus", {})
    first, second = (
        "Kendall tau-b up to 0.96 (Alpaca)",
        "Pairwise ranks better than pointwise and listwise, up to 5.5x the pointwise tau",
    )
    if "pars" not in taus:
        nothing = "the bundled trace carries no scores; see parsim compare"
        return [
            Claim(c, nothing, "measured on prompts, not here", "not testable here") for c in (first, second)
        ]
    told_taus = ", ".join(f"{name} {tau:.3f}" for name, tau in taus.items())
    ratio = taus["pars"] / taus["pointwise"] if taus.get("pointwise") else float("nan")
    return [
        Claim(
            first,
            f"all prompts of the bundled trace, held out, unfiltered: {told_taus}",
            "not on these corpora",
            "reached" if taus["pars"] >= 0.96 else "not reached",
        ),
        Claim(
            second,
            f"pairwise / pointwise {times(ratio)}",
            "not on these corpora" if ratio < 5.5 else "here",
            "reached" if ratio >= 5.5 else "not reached",
        ),
    ]


def backlog_gains(done: dict[str, Results]) -> list[dict[str, object]]:
    """Gain over FCFS against the number of requests of the same overload, by policy and guard."""
    return [
        {
            "requests": results.facts["trace"]["requests"],
            "policy": policy,
            "guard_s": guard,
            **results.ratio(
                results.select("main", policy="fcfs"),
                results.select("main", policy=policy, starvation_threshold_s=guard),
                "mean_per_token_latency_ms",
            )._asdict(),
        }
        for name, results in done.items()
        if name.startswith("backlog")
        for policy in ("pars", "oracle")
        for guard in (None, DEFAULT_STARVATION_THRESHOLD_S)
    ]

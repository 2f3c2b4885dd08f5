"""The learner and the judge in a simulated run: what is learned there, what it changes, and that it does no harm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from parsim.emulation import emulate_scores
from parsim.engine import EngineConfig
from parsim.engine.step_time import StepTime
from parsim.scheduler.policy import POLICIES
from parsim.simulation import Run, simulate
from parsim.traces import Trace

ENGINE = EngineConfig(
    max_num_seqs=16,
    max_num_batched_tokens=2048,
    num_gpu_blocks=5000,
    max_model_len=4096,
    step_time=StepTime(base_s=0.01, decode_seq_s=0.0002),
)
CAPACITY = 9.45
"""Requests per second that the engine serves of `drawn`, measured by a burst of 3,000."""


def drawn(count: int, load: float, seed: int) -> Trace:
    """Requests whose words tell their length roughly; 1.0 is the engine's capacity."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, 30, count)
    length = np.clip(np.geomspace(8, 600, 30)[topic] * rng.lognormal(0, 0.4, count), 1, 2000).astype(int)
    noise = rng.integers(0, 500, (count, 4))
    words = [
        f"w{a} about topic{t} and topic{t}b w{b} w{c} w{d}"
        for t, (a, b, c, d) in zip(topic, noise, strict=True)
    ]
    return Trace(
        pl.DataFrame(
            {
                "request_id": [f"r{number}" for number in range(count)],
                "arrival_s": np.cumsum(rng.exponential(1 / (CAPACITY * load), count)),
                "prompt_tokens": rng.integers(8, 40, count),
                "output_tokens": length,
                "prompt": words,
            }
        )
    )


def mean_s(run: Run) -> float:
    return float((run.requests["finish_s"] - run.requests["arrival_s"]).mean())  # type: ignore[arg-type]


def tail_s(run: Run) -> float:
    return float((run.requests["finish_s"] - run.requests["arrival_s"]).quantile(0.99))  # type: ignore[arg-type]


def test_it_learns_only_from_what_has_finished_and_shortens_the_mean() -> None:
    trace = drawn(1500, 1.2, 1)
    online = simulate(trace, ENGINE, "online")
    first_finish = float(online.requests["finish_s"].min())  # type: ignore[arg-type]
    before = online.requests.filter(pl.col("arrival_s") < first_finish)
    assert before["score"].is_null().all()
    assert online.metadata["learned_tau"] > 0.45 and online.metadata["scored"] > 0.9
    assert online.metadata["trusted_times"] >= 1
    fcfs, oracle = simulate(trace, ENGINE, "fcfs"), simulate(trace, ENGINE, "oracle")
    assert mean_s(oracle) < mean_s(online) < 0.8 * mean_s(fcfs)


def test_the_same_run_step_by_step_learns_the_same() -> None:
    trace = drawn(500, 1.3, 2)
    fast, slow = simulate(trace, ENGINE, "online"), simulate(trace, ENGINE, "online", steps="log")
    assert fast.requests.equals(slow.requests)


def test_what_comes_later_changes_nothing_before() -> None:
    trace = drawn(600, 1.2, 3)
    whole, part = simulate(trace, ENGINE, "online"), simulate(trace.head(300), ENGINE, "online")
    cut = float(trace.frame["arrival_s"][300])
    early = pl.col("finish_s") < cut
    assert whole.requests.filter(early).equals(part.requests.filter(early))


def test_a_row_that_was_drawn_twice_is_not_known_beforehand() -> None:
    """Words that say nothing: whoever ranks such responses has seen these very ones."""
    rng = np.random.default_rng(9)
    trace = drawn(700, 1.2, 8)
    blank = trace.frame.with_columns(
        pl.Series("prompt", [f"w{rng.integers(10**6)} w{rng.integers(10**6)}" for _ in range(700)]),
        prompt_tokens=pl.lit(10),
    )
    again = pl.concat([blank, blank.with_columns(pl.col("request_id") + "b", pl.col("arrival_s") + 80.0)])
    run = simulate(Trace(again.sort("arrival_s")), ENGINE, "online")
    assert abs(run.metadata["learned_tau"]) < 0.08
    first, second = (
        run.requests.filter(pl.col("request_id").str.ends_with("b") == late) for late in (False, True)
    )
    both = first.join(second.with_columns(pl.col("request_id").str.strip_suffix("b")), on="request_id")
    assert both.filter(pl.col("score") != pl.col("score_right")).is_empty()


def test_without_text_it_goes_by_lengths_and_clients() -> None:
    trace = drawn(1200, 1.2, 4)
    long = trace.frame["output_tokens"] > 80
    clients = pl.Series("client_id", np.where(long.to_numpy(), "report", "chat"))
    run = simulate(Trace(trace.frame.drop("prompt").with_columns(clients)), ENGINE, "online")
    assert run.metadata["learned_tau"] > 0.4


def scores(kind: str, lengths: np.ndarray, seed: int) -> np.ndarray:
    count = len(lengths)
    if kind == "constant":
        return np.ones(count)
    if kind == "nan":
        return np.full(count, np.nan)
    if kind == "inverted midway":
        good = emulate_scores(lengths, 0.6, seed)[0]
        return np.where(np.arange(count) < count // 2, good, -good)
    return emulate_scores(lengths, float(kind), seed)[0]


@pytest.mark.parametrize("load", [1.1, 1.4])
@pytest.mark.parametrize("kind", ["-0.6", "-0.3", "0", "constant", "nan", "inverted midway"])
def test_scores_that_do_not_rank_cost_nothing(kind: str, load: float) -> None:
    """Not 5% worse than first come, first served in the mean; nor in the tail, unless scores that did rank moved it."""
    trace = drawn(1500, load, 5)
    lengths = trace.frame["output_tokens"].to_numpy()
    scored = Trace(trace.frame.with_columns(pl.Series("score.pars", scores(kind, lengths, 7))))
    fcfs = simulate(scored, ENGINE, "fcfs")
    judged = simulate(scored, ENGINE, replace(POLICIES["pars"], do_no_harm=True))
    assert mean_s(judged) < 1.05 * mean_s(fcfs)
    if kind != "inverted midway":
        assert tail_s(judged) < 1.05 * tail_s(fcfs)


def test_scores_that_rank_keep_their_gain() -> None:
    trace = drawn(2500, 1.3, 6)
    good = emulate_scores(trace.frame["output_tokens"].to_numpy(), 0.5, 1)[0]
    scored = Trace(trace.frame.with_columns(pl.Series("score.pars", good)))
    fcfs, free = simulate(scored, ENGINE, "fcfs"), simulate(scored, ENGINE, "pars")
    judged = simulate(scored, ENGINE, replace(POLICIES["pars"], do_no_harm=True))
    gained, kept = mean_s(fcfs) - mean_s(free), mean_s(fcfs) - mean_s(judged)
    assert gained > 0.2 * mean_s(fcfs) and kept > 0.9 * gained

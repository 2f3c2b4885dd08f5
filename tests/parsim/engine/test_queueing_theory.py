"""The engine against formulas that were proved elsewhere: one seat, Poisson arrivals, exponential service."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from parsim.engine.config import EngineConfig
from parsim.engine.run import Workload, run
from parsim.engine.step_time import StepTime
from parsim.scheduler.policy import Policy

TOKEN_S = 0.01
MEAN_TOKENS = 100
UTILISATION = 0.8
SEEDS = 8
REQUESTS = 10_000


def mean_wait_s(order: str, seed: int) -> float:
    """Mean wait of a one-seat engine; a response of n tokens takes n steps of 10 ms (prompt of 1 token included)."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(MEAN_TOKENS * TOKEN_S / UTILISATION, REQUESTS))
    tokens = np.maximum(1, np.rint(rng.exponential(MEAN_TOKENS, REQUESTS))).astype(int)
    policy = Policy(order, "fcfs" if order == "fcfs" else "score")
    config = EngineConfig(
        max_num_seqs=1,
        num_gpu_blocks=1025,
        block_size=32,
        enable_prefix_caching=False,
        async_scheduling=False,
        step_time=StepTime(base_s=TOKEN_S),
    )
    names = [f"r{i:06d}" for i in range(REQUESTS)]
    workload = Workload(
        names, arrivals.tolist(), [1] * REQUESTS, tokens.tolist(), tokens.astype(float).tolist()
    )
    waits = np.asarray(run(workload, config, policy).times["first_scheduled_s"]) - arrivals
    return float(np.mean(waits[REQUESTS // 10 :]))


def interval(order: str) -> tuple[float, float]:
    """99% confidence interval of the mean wait over independent seeds."""
    means = [mean_wait_s(order, seed) for seed in range(SEEDS)]
    half = stats.t.ppf(0.995, SEEDS - 1) * stats.sem(means)
    return float(np.mean(means) - half), float(np.mean(means) + half)


@pytest.mark.deep
def test_fcfs_waits_as_in_an_mm1_queue() -> None:
    """W = rho / (mu - lambda), e.g. Kleinrock, Queueing Systems I, 3.2."""
    service_s = MEAN_TOKENS * TOKEN_S
    expected = UTILISATION * service_s / (1 - UTILISATION)
    low, high = interval("fcfs")
    assert low <= expected <= high


@pytest.mark.deep
def test_shortest_first_waits_as_in_an_mg1_queue_with_that_order() -> None:
    """Non-preemptive SJF: W = E over x of (lambda E[S^2] / 2) / (1 - rho(x))^2 (Phipps 1956), exponential S."""
    service_s = MEAN_TOKENS * TOKEN_S
    rate = UTILISATION / service_s
    residual = rate * 2 * service_s**2 / 2

    def load_below(x: float) -> float:
        return UTILISATION * (1 - np.exp(-x / service_s) * (1 + x / service_s))

    expected, _ = integrate.quad(
        lambda x: np.exp(-x / service_s) / service_s * residual / (1 - load_below(x)) ** 2, 0, 60 * service_s
    )
    low, high = interval("sjf")
    assert low <= expected <= high

"""Engines behind a router: one is the engine alone, turns are separate engines, nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.engine import EngineConfig, StepTime
from parsim.engine.run import Workload, run
from parsim.fleet import run_fleet
from parsim.router import ROUTERS, router_of
from parsim.scheduler.policy import parse_policy

STEP = StepTime(base_s=0.01, prefill_token_s=1e-4, decode_seq_s=1e-5, kv_token_s=1e-7, attention_pair_s=1e-9)
ENGINE = EngineConfig(num_gpu_blocks=120, max_num_seqs=8, max_model_len=1500, step_time=STEP)
FCFS = parse_policy("fcfs")


def drawn(requests: int, rate: float, seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    return Workload(
        [f"r{i}" for i in range(requests)],
        np.cumsum(rng.exponential(1 / rate, requests)).tolist(),
        rng.integers(1, 600, requests).tolist(),
        rng.integers(1, 200, requests).tolist(),
    )


@settings(deadline=None, max_examples=10)
@given(
    seed=st.integers(0, 999),
    rate=st.sampled_from([1.0, 8.0, 50.0]),
    name=st.sampled_from(sorted(ROUTERS)),
    overlapped=st.booleans(),
)
def test_one_engine_is_the_engine_alone(seed: int, rate: float, name: str, overlapped: bool) -> None:
    engine = ENGINE.model_copy(update={"async_scheduling": overlapped})
    load = drawn(60, rate, seed)
    alone, fleet = run(load, engine, FCFS), run_fleet(load, [engine], FCFS, router_of(name))
    assert fleet.frame().equals(alone.frame())
    assert fleet.engines[0].step == alone.engine.step


@settings(deadline=None, max_examples=6)
@given(seed=st.integers(0, 999), count=st.integers(2, 4))
def test_turns_are_separate_engines(seed: int, count: int) -> None:
    load = drawn(60, 20.0, seed)
    fleet = run_fleet(load, [ENGINE] * count, FCFS, router_of("round-robin")).frame()
    for number in range(count):
        rows = range(number, 60, count)
        part = Workload(
            [load.request_id[i] for i in rows],
            [load.arrival_s[i] for i in rows],
            [load.prompt_tokens[i] for i in rows],
            [load.output_tokens[i] for i in rows],
        )
        assert fleet[list(rows)].equals(run(part, ENGINE, FCFS).frame())


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 999), name=st.sampled_from(sorted(ROUTERS)), count=st.integers(1, 5))
def test_every_request_is_served_once_and_books_are_even(seed: int, name: str, count: int) -> None:
    load = drawn(80, 40.0, seed)
    outcome = run_fleet(load, [ENGINE] * count, FCFS, router_of(name, seed))
    assert all(outcome.ended)
    assert set(outcome.replica) <= set(range(count))
    for engine in outcome.engines:
        engine.former.cache.check(())
        assert engine.kv_usage == 0


def test_the_balancer_beats_a_blind_draw_and_two_engines_one() -> None:
    load = drawn(400, 6.0, 3)

    def mean_s(engines: int, name: str) -> float:
        frame = run_fleet(load, [ENGINE] * engines, FCFS, router_of(name)).frame()
        return float((frame["finish_s"] - np.asarray(load.arrival_s)).mean())  # type: ignore[arg-type]

    assert mean_s(2, "vllm-dp") < mean_s(2, "random")
    assert mean_s(2, "vllm-dp") < 0.7 * mean_s(1, "vllm-dp")


def test_snapshots_are_a_tenth_of_a_second_old_at_most() -> None:
    """Two requests 50 ms apart: the second router call sees the state published 0 ms after the start, not the first
    request's running."""
    seen = []

    class Spy:
        publish_s = 0.1

        def choose(self, request: object, views: list, now_s: float) -> int:  # type: ignore[type-arg]
            seen.append((now_s, views[0].as_of_s, views[0].running, views[0].in_flight))
            return 0

    load = Workload(["a", "b", "c"], [0.0, 0.05, 0.17], [100, 100, 100], [50, 50, 50])
    run_fleet(load, [ENGINE], FCFS, Spy())
    assert seen == [(0.0, 0.0, 0, 0), (0.05, 0.0, 0, 1), (0.17, pytest.approx(0.1), 2, 2)]

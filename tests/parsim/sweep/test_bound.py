"""The lower bound: below every schedule of small cases (all tried), below the simulator, and not idle."""

from __future__ import annotations

from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.engine import EngineConfig, StepTime, load_engine
from parsim.scheduler.policy import parse_policy
from parsim.simulation import simulate
from parsim.sweep.bound import lower_bound_ms
from parsim.traces import bundled_trace

STEP = StepTime(base_s=1.0, prefill_token_s=0.3, decode_seq_s=0.2, kv_token_s=0.05, attention_pair_s=0.01)


def engine(seqs: int, tokens: int, blocks: int) -> EngineConfig:
    return EngineConfig(
        max_num_seqs=seqs,
        max_num_batched_tokens=max(tokens, seqs),
        num_gpu_blocks=blocks + 1,
        block_size=2,
        max_model_len=64,
        step_time=STEP,
    )


def best_of_all(requests: list[tuple[float, int, int]], config: EngineConfig, weights: list[float]) -> float:
    """The least weighted sum of latencies over all schedules, by trying every batch at every step.

    A superset of what any scheduler can do: whole prompts in one step, no cost of being paused (blocks of paused
    requests are not counted), no admission order. Idle steps jump to the next arrival.
    """

    @cache
    def search(now: float, done: tuple[int, ...]) -> float:
        open_ = [i for i, (_, _, o) in enumerate(requests) if done[i] < o]
        if not open_:
            return 0.0
        here = [i for i in open_ if requests[i][0] <= now]
        later = [requests[i][0] for i in open_ if requests[i][0] > now]
        best = search(min(later), done) if later else float("inf")
        for size in range(1, min(len(here), config.max_num_seqs) + 1):
            for batch in combinations(here, size):
                tokens = sum(requests[i][1] if done[i] == 0 else 1 for i in batch)
                held = sum(-(-(requests[i][1] + done[i]) // config.block_size) for i in batch)
                if tokens > config.max_num_batched_tokens or held > config.usable_blocks:
                    continue
                prefill = [requests[i][1] for i in batch if done[i] == 0]
                decode = [requests[i][1] + done[i] - 1 for i in batch if done[i] > 0]
                took = STEP.seconds(
                    sum(prefill), len(decode), sum(decode), sum(n * (n + 1) // 2 for n in prefill)
                )
                then = list(done)
                ended = 0.0
                for i in batch:
                    then[i] += 1
                    if then[i] == requests[i][2]:
                        ended += weights[i] * (now + took - requests[i][0])
                best = min(best, ended + search(round(now + took, 9), tuple(then)))
        return best

    return search(0.0, (0,) * len(requests))


CASES = [
    ([(0.0, 1, 1)], 1, 8, 8),
    ([(0.0, 2, 3), (0.0, 1, 1)], 1, 8, 8),
    ([(0.0, 2, 3), (0.5, 1, 1), (0.5, 3, 2)], 2, 4, 6),
    ([(0.0, 4, 4), (0.0, 4, 1), (2.0, 1, 3)], 3, 8, 5),
]


@pytest.mark.parametrize(("requests", "seqs", "tokens", "blocks"), CASES)
@pytest.mark.parametrize("per_token", [True, False])
def test_below_the_best_of_all_schedules(
    requests: list[tuple[float, int, int]], seqs: int, tokens: int, blocks: int, per_token: bool
) -> None:
    check(requests, seqs, tokens, blocks, per_token)


def check(
    requests: list[tuple[float, int, int]], seqs: int, tokens: int, blocks: int, per_token: bool
) -> None:
    config = engine(seqs, tokens, blocks)
    weights = [1 / o if per_token else 1.0 for _, _, o in requests]
    best = best_of_all(requests, config, weights) / len(requests) * 1e3
    arrival, prompt, output = (np.array(column) for column in zip(*requests, strict=True))
    bound = lower_bound_ms(arrival.astype(float), prompt, output, np.array(weights), config, False)
    assert bound <= best * (1 + 1e-9)
    assert bound > 0


request = st.tuples(st.sampled_from([0.0, 0.7, 2.0]), st.integers(1, 4), st.integers(1, 4))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(request, min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(4, 9),
    st.integers(5, 12),
    st.booleans(),
)
def test_below_the_best_of_all_schedules_of_random_cases(
    requests: list[tuple[float, int, int]], seqs: int, tokens: int, blocks: int, per_token: bool
) -> None:
    check(sorted(requests), seqs, tokens, blocks, per_token)


def test_alone_on_the_engine_the_bound_is_the_latency() -> None:
    config = engine(1, 64, 64)
    arrival, prompt, output = np.array([0.0]), np.array([4]), np.array([40])
    alone = STEP.seconds(4, 0, 0, 10) + sum(STEP.seconds(0, 1, 4 + k, 0) for k in range(39))
    bound = lower_bound_ms(arrival, prompt, output, np.ones(1), config, False) / 1e3
    assert bound == pytest.approx(alone)  # the price relaxation at price 0 is exact here


def test_below_every_policy_of_the_simulator() -> None:
    trace = bundled_trace()
    config = load_engine("llama-3.1-8b-a100-80g", {"num_gpu_blocks": 8000})
    frame = trace.frame.head(600)
    arrival, prompt, output = (frame[c].to_numpy() for c in ("arrival_s", "prompt_tokens", "output_tokens"))
    for load, policy in product((0.5, 3.0), ("fcfs", "oracle")):
        run = simulate(type(trace)(frame, trace.metadata), config, parse_policy(policy), load=load)
        e2el = (run.requests["finish_s"] - run.requests["arrival_s"]).to_numpy()
        bound = lower_bound_ms(arrival / load, prompt, output, 1 / output, config, False)
        real = float(np.mean(e2el / output) * 1e3)
        assert bound <= real
        assert bound >= 0.25 * real or policy == "fcfs"

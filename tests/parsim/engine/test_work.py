"""The work of a request: what it adds to the steps of a full batch."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.engine.config import EngineConfig
from parsim.engine.step_time import StepTime
from parsim.engine.work import clairvoyant_score
from parsim.metrics import summarize
from parsim.scheduler.policy import parse_policy
from parsim.simulation import simulate
from parsim.traces import Trace, synthesize

STEP = StepTime(base_s=0.01, prefill_token_s=1e-4, decode_seq_s=2e-4, kv_token_s=3e-7, attention_pair_s=5e-9)


def trace(prompts: list[int], outputs: list[int]) -> Trace:
    count = len(prompts)
    return Trace(
        pl.DataFrame(
            {
                "request_id": [f"r{n}" for n in range(count)],
                "arrival_s": [0.0] * count,
                "prompt_tokens": prompts,
                "output_tokens": outputs,
            }
        )
    )


def engine(seats: int, budget: int, **more: int) -> EngineConfig:
    given = {"num_gpu_blocks": 10_000, "block_size": 16, "max_model_len": 100_000, **more}
    return EngineConfig(
        max_num_seqs=seats,
        max_num_batched_tokens=budget,
        enable_prefix_caching=False,
        async_scheduling=False,
        step_time=STEP,
        **given,
    )


@given(seats=st.integers(1, 12), prompt=st.integers(12, 300), output=st.integers(1, 80))
@settings(max_examples=40, deadline=None)
def test_works_of_a_full_batch_sum_to_the_time_that_its_steps_took(
    seats: int, prompt: int, output: int
) -> None:
    """As many equal requests as there are seats, whose prompts fill one step's budget to the last token."""
    config = engine(seats, seats * prompt)
    work = trace([prompt] * seats, [output] * seats)
    run = simulate(work, config, parse_policy("fcfs"))
    total = work.frame.select(clairvoyant_score("work_s", config).sum()).item()
    assert run.metadata["busy_s"] == pytest.approx(total, rel=1e-9)


def test_the_weighted_work_is_the_work_times_the_response_and_the_column_itself_the_response() -> None:
    config = engine(4, 1000)
    frame = trace([10, 500], [7, 30]).frame
    work, weighted, plain = (
        frame.select(clairvoyant_score(name, config)).to_series()
        for name in ("work_s", "weighted_work_s", "output_tokens")
    )
    assert (weighted / work).to_list() == pytest.approx([7, 30])
    assert plain.to_list() == [7, 30]
    by_hand = 1e-4 * 500 + 0.01 / 2 + 5e-9 * 500 * 501 / 2 + 29 * (2e-4 + 0.01 / 4)
    assert work[1] == pytest.approx(by_hand + 3e-7 * (29 * 500 + 29 * 28 / 2))


def test_with_long_prompts_and_short_answers_the_work_orders_better_than_the_response() -> None:
    drawn = synthesize(
        "poisson(rate=8)",
        {"prompt_mean": 3000, "prompt_cv": 1.8, "output_mean": 60, "output_cv": 1.0, "max_tokens": 16000},
        400,
        1,
    )
    config = engine(256, 2048, num_gpu_blocks=30_000)
    mean = {
        name: summarize(simulate(drawn, config, parse_policy(name)).requests)
        for name in ("oracle", "oracle-work", "oracle-weighted", "prompt-sjf")
    }
    latency, per_token = (
        {name: m[metric] for name, m in mean.items()}
        for metric in ("mean_e2el_ms", "mean_per_token_latency_ms")
    )
    assert latency["oracle-work"] == min(latency.values()) < 0.8 * latency["oracle"]
    assert per_token["oracle-weighted"] == min(per_token.values())


@pytest.mark.parametrize("name", ["oracle-work", "oracle-weighted"])
def test_they_are_bounds_and_nothing_to_run(name: str) -> None:
    policy = parse_policy(name)
    assert policy.clairvoyant and not policy.runs_in_vllm and not policy.has_predictor

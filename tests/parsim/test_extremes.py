"""Runs at the ends of what can be asked for: the clock advances and nothing is lost, or one line says why not."""

from __future__ import annotations

import math

import polars as pl
import pytest

from parsim.engine import EngineConfig, load_engine
from parsim.engine.step_time import StepTime
from parsim.scheduler.policy import POLICIES, parse_policy
from parsim.simulation import simulate
from parsim.traces import Trace, UserError


def trace(arrivals: list[float], tokens: int = 20) -> Trace:
    count = len(arrivals)
    frame = {
        "request_id": [str(i) for i in range(count)],
        "arrival_s": arrivals,
        "prompt_tokens": [tokens + i for i in range(count)],
        "output_tokens": [1 + 7 * i % 40 for i in range(count)],
    }
    return Trace(pl.DataFrame(frame), {"name": "t"})


def engine(**changed: object) -> EngineConfig:
    step_time = StepTime(base_s=1e-3, prefill_token_s=1e-5, decode_seq_s=1e-5)
    fields = {"num_gpu_blocks": 40, "max_num_seqs": 4, "max_num_batched_tokens": 64, "step_time": step_time}
    return EngineConfig.model_validate(fields | changed)


@pytest.mark.parametrize(
    ("last_s", "load", "base_s"),
    [(1e18, 1.0, 1e-3), (1.0, 1e-300, 1e-3), (1.0, 5e-324, 1e-3), (1e9, 1.0, 1e-6), (1e300, 1.0, 1e-3)],
)
def test_a_clock_that_would_stand_still_is_refused(last_s: float, load: float, base_s: float) -> None:
    config = engine(step_time=StepTime(base_s=base_s, decode_seq_s=1e-18))
    with pytest.raises(UserError, match=r"where the clock cannot tell steps of .* s apart; raise the load"):
        simulate(trace([0.0, last_s]), config, POLICIES["fcfs"], load=load)


def test_a_late_arrival_on_a_clock_that_moves_costs_what_an_early_one_does() -> None:
    late = simulate(trace([0.0, 1e9]), engine(), POLICIES["fcfs"]).requests
    early = simulate(trace([0.0, 100.0]), engine(), POLICIES["fcfs"]).requests
    for frame in (late, early):
        assert (frame["finish_s"] > frame["first_scheduled_s"]).all()
    took = [(frame["finish_s"] - frame["arrival_s"])[1] for frame in (late, early)]
    assert took[0] == pytest.approx(took[1], rel=1e-3)


@pytest.mark.parametrize("policy", ["fcfs", "oracle", "hrrn", "prompt-sjf"])
@pytest.mark.parametrize(
    "changed",
    [
        {"num_gpu_blocks": 10**12},
        {"num_gpu_blocks": 10**15, "max_num_seqs": 1},
        {"block_size": 1, "num_gpu_blocks": 130},
        {"block_size": 10**6, "num_gpu_blocks": 2},
        {"max_num_seqs": 1, "max_num_batched_tokens": 1},
        {"watermark": 0.999},
        {"long_prefill_token_threshold": 1},
        {"enable_prefix_caching": False, "async_scheduling": False, "num_gpu_blocks": 6},
    ],
)
def test_every_request_that_fits_ends_and_waits_no_longer_than_the_rest(policy: str, changed: dict) -> None:
    """The engine checks at its end that no block was lost."""
    requests = simulate(
        trace([i * 1e-3 for i in range(60)]), engine(**changed), parse_policy(policy)
    ).requests
    done = requests.filter(pl.col("rejected").is_null())
    assert done["finish_s"].null_count() == 0
    assert (done["finish_s"] >= done["first_token_s"]).all()
    assert (done["first_token_s"] > done["first_scheduled_s"]).all()
    assert (done["first_scheduled_s"] >= done["arrival_s"]).all()


def test_a_threshold_of_zero_is_first_come_first_served() -> None:
    from dataclasses import replace

    burst = trace([i * 1e-4 for i in range(40)])
    guarded = replace(POLICIES["oracle"], starvation_threshold_s=0.0)
    slots = engine(max_num_seqs=1)
    order = simulate(burst, slots, guarded).requests.sort("first_scheduled_s")["request_id"].to_list()
    assert order == [str(i) for i in range(40)]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("block_size", 10**12, "block_size: Input should be less than or equal to 1000000"),
        ("num_gpu_blocks", 10**44, "num_gpu_blocks: Input should be less than or equal to"),
        ("max_num_seqs", "true", "max_num_seqs: expected a number or text, got true"),
        ("step_time.base_s", "1.0e+300", "step_time.base_s: Input should be less than or equal to 1000000"),
    ],
)
def test_settings_that_no_engine_has(field: str, value: object, said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_engine("llama-3.1-8b-a100-80g", {field: value})


def test_emulation_of_few_or_equal_lengths() -> None:
    for count in (1, 2, 3):
        run = simulate(trace([0.0] * count), engine(), parse_policy("emulated(tau=0.5)"))
        assert run.requests["finish_s"].null_count() == 0
        assert math.isnan(run.metadata["reached_tau"]) == (count == 1)
    with pytest.raises(UserError, match="seed -1: must be 0 or more"):
        simulate(trace([0.0] * 3), engine(), parse_policy("emulated(tau=0.5)"), seed=-1)

"""The time of a step: overlap by hand, its tangent, and runs of steps that stay exact with it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from parsim.engine import EngineConfig, StepTime, load_engine
from parsim.engine.batch import Batch, BatchFormer
from parsim.engine.presets.cards import CARDS
from parsim.engine.presets.costs import costs_of
from parsim.engine.presets.models import model_of
from parsim.engine.presets.precision import precision_of
from parsim.engine.presets.roofline import reached
from parsim.engine.run import Workload, run
from parsim.scheduler.policy import parse_policy

seconds = st.floats(0, 0.05)
shapes = st.builds(
    StepTime,
    base_s=st.floats(1e-4, 0.02),
    prefill_token_s=st.floats(0, 1e-4),
    decode_seq_s=st.floats(0, 1e-4),
    kv_token_s=st.floats(0, 1e-6),
    attention_pair_s=st.floats(0, 1e-8),
    weights_s=seconds,
    token_s=st.floats(0, 1e-3),
    experts_s=seconds,
    expert_share=st.floats(0, 1),
)


def test_reading_and_arithmetic_overlap() -> None:
    """sqrt(3^2 + (0.04 * 100)^2) = 5 ms beside the other terms; one token of share 1/2 touches half the experts."""
    step = StepTime(base_s=1e-3, weights_s=3e-3, token_s=4e-5, decode_seq_s=1e-5)
    assert step.seconds(60, 40, 0, 0) == pytest.approx(1e-3 + 5e-3 + 40e-5)
    experts = StepTime(base_s=0, weights_s=1e-3, experts_s=8e-3, expert_share=0.5)
    assert experts.seconds(0, 1, 0, 0) == pytest.approx(5e-3)
    assert experts.seconds(0, 2, 0, 0) == pytest.approx(7e-3)
    assert experts.seconds(1000, 0, 0, 0) == pytest.approx(9e-3)
    alone = StepTime(base_s=1e-3, experts_s=8e-3, expert_share=0.5)
    assert alone.seconds(0, 2, 0, 0) == pytest.approx(7e-3) == alone.decode_only(2)(0)
    with pytest.raises(ValidationError, match="time must pass"):
        StepTime(base_s=0, experts_s=1.0)


@given(step=shapes, prefill=st.integers(0, 8192), decode=st.integers(0, 1024), at=st.integers(1, 1024))
@example(step=StepTime(base_s=0.01, experts_s=0.03, expert_share=1.0), prefill=1, decode=0, at=1)
@example(step=StepTime(base_s=0.01, experts_s=0.03, expert_share=0.0), prefill=0, decode=5, at=1)
def test_the_additive_form_is_never_longer_and_touches(
    step: StepTime, prefill: int, decode: int, at: int
) -> None:
    assume(prefill + decode > 0)  # a step has a token
    below = step.additive(at)
    assert below.weights_s == below.token_s == below.experts_s == 0
    assert below.seconds(prefill, decode, 7, 9) <= step.seconds(prefill, decode, 7, 9) * (1 + 1e-12)
    dense = step.model_copy(update={"experts_s": 0.0})
    assert dense.additive(at).seconds(0, at, 0, 0) == pytest.approx(dense.seconds(0, at, 0, 0))


@given(step=shapes, decode=st.integers(1, 1024), kv=st.integers(0, 10**6))
def test_a_decode_step_is_the_same_to_the_last_bit(step: StepTime, decode: int, kv: int) -> None:
    assert step.decode_only(decode)(kv) == step.seconds(0, decode, kv, 0)
    assert step.least_s > 0


class Watch:
    """An observer makes the engine go step by step."""

    def observe(self, batch: Batch, former: BatchFormer) -> None:
        pass


@settings(deadline=None, max_examples=20)
@given(step=shapes, seed=st.integers(0, 99), overlapped=st.booleans())
def test_runs_of_steps_are_exact_with_overlap(step: StepTime, seed: int, overlapped: bool) -> None:
    rng = np.random.default_rng(seed)
    load = Workload(
        [f"r{i}" for i in range(25)],
        np.cumsum(rng.exponential(0.1, 25)).tolist(),
        rng.integers(1, 300, 25).tolist(),
        rng.integers(1, 80, 25).tolist(),
    )
    engine = EngineConfig(
        num_gpu_blocks=60, max_num_seqs=6, max_model_len=500, async_scheduling=overlapped, step_time=step
    )
    fcfs = parse_policy("fcfs")
    assert run(load, engine, fcfs).frame().equals(run(load, engine, fcfs, observer=Watch()).frame())


PROFILED_MS = {
    # (model, card): decode steps of n sequences with 512 tokens each, prefill steps of n tokens
    ("llama-3.1-8b", "rtx-4090"): (
        {1: 16.8, 8: 17.9, 32: 21.5, 64: 24.8, 128: 31.4, 256: 45.7},
        {128: 21.1, 256: 25.5, 512: 48.3, 1024: 95.5, 2048: 193.0},
    ),
    ("llama-3.1-8b", "rtx-pro-6000"): (
        {1: 11.3, 8: 11.5, 32: 13.3, 64: 15.8, 128: 19.7, 256: 27.6},
        {128: 12.6, 256: 15.0, 512: 23.7, 1024: 42.4, 2048: 82.9},
    ),
    ("qwen3-32b", "rtx-pro-6000"): (
        {1: 44.7, 8: 47.3, 32: 52.6, 64: 56.9, 128: 67.6, 256: 89.6},
        {128: 54.2, 256: 64.5, 512: 99.4, 1024: 185.2, 2048: 365.7},
    ),
    ("qwen3-30b-a3b", "rtx-pro-6000"): (
        {1: 4.7, 8: 19.5, 32: 38.5, 64: 44.2, 128: 49.6, 256: 56.0},
        {128: 43.6, 256: 45.6, 512: 49.7, 1024: 57.6, 2048: 74.2},
    ),
}
"""Sums over the layer profiles of LLMServingSim (vLLM 0.19 kernels, bfloat16, github.com/casys-kaist/LLMServingSim,
profiler/perf, commit 5daddb2): projections, norms, activations, attention, output matrix, sampler. With experts: as
many as a batch touches that chooses at random."""


@pytest.mark.parametrize(("model", "gpu"), PROFILED_MS)
def test_presets_against_profiled_steps(model: str, gpu: str) -> None:
    step = load_engine(model, gpu=gpu).step_time
    decode, prefill = PROFILED_MS[model, gpu]
    for n, measured in decode.items():
        assert step.seconds(0, n, 512 * n, 0) * 1e3 == pytest.approx(measured, rel=0.205), f"decode {n}"
    for n, measured in prefill.items():
        assert step.seconds(n, 0, 0, n * (n + 1) // 2) * 1e3 == pytest.approx(measured, rel=0.2), (
            f"prefill {n}"
        )


PROFILED_LAYER_US = {
    ("llama-3.1-8b", "a100-80g"): {
        1: 276,
        8: 286,
        32: 315,
        64: 324,
        128: 377,
        256: 554,
        512: 994,
        2048: 4072,
    },
    ("llama-3.1-70b", "h100"): {1: 593, 8: 575, 32: 596, 64: 600, 128: 611, 256: 719, 512: 1169, 2048: 4903},
}
"""Projections of one layer in vidur's profiles (github.com/microsoft/vidur, data/profiling/compute, commit 7d47513):
Meta-Llama-3-8B on an A100, Llama-2-70B, whose layers are Llama-3.1-70B's, on an H100."""


@pytest.mark.parametrize(("model", "gpu"), PROFILED_LAYER_US)
def test_presets_against_profiled_layers(model: str, gpu: str) -> None:
    shape = model_of(model)
    costs = costs_of(shape, precision_of(shape), CARDS[gpu], 1)
    bandwidth, flops = reached(gpu)
    weights = shape.weights.attention + shape.weights.dense
    read_us = 2 * weights / CARDS[gpu].bandwidth / bandwidth / shape.layers * 1e6
    token_us = costs.token_s / flops / shape.layers * 1e6
    for n, measured in PROFILED_LAYER_US[model, gpu].items():
        assert math.hypot(read_us, n * token_us) == pytest.approx(measured, rel=0.2), n

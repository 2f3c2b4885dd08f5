"""The real vLLM engine on the CPU, with `ParsScheduler`, against the simulated one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

pytest.importorskip("vllm")

from parsim.engine.config import EngineConfig
from parsim.engine.step_time import StepTime
from parsim.scheduler.policy import POLICIES
from parsim.validate.parity.case import Case, CaseRequest
from parsim.validate.parity.compare import time_difference
from parsim.validate.parity.model import simulate_case
from parsim.validate.parity.real_engine import drive_engine

pytestmark = pytest.mark.vllm


def test_200_requests_come_out_of_the_real_engine_when_the_simulator_says() -> None:
    """Arrivals by step, KV memory for 39 blocks of 32: every first and last token in the same step."""
    rng = random.Random(5)
    step = 0
    requests = []
    for number in range(200):
        step += rng.choice([0, 0, 1, 2, 5])
        output = min(150, int(rng.lognormvariate(3.2, 0.8)) + 1)
        requests.append(
            CaseRequest(
                request_id=f"r{number:03}",
                arrival_s=float(step),
                prompt_tokens=min(300, int(rng.lognormvariate(4.0, 0.8)) + 1),
                output_tokens=output,
                score=float(output // 10),
            )
        )
    engine = EngineConfig(
        max_num_seqs=16,
        max_num_batched_tokens=256,
        block_size=32,
        num_gpu_blocks=40,
        max_model_len=512,
        async_scheduling=False,
        step_time=StepTime(base_s=1.0),
    )
    policy = replace(POLICIES["pars"], starvation_threshold_s=60.0)
    case = Case(engine=engine, policy=policy, requests=requests)
    model = simulate_case(case)
    assert model.preemptions > 30
    real = drive_engine(case)
    assert len(real.last_token_s) == 200
    assert time_difference(real, model) is None
    by_finish = sorted(real.last_token_s, key=lambda name: (real.last_token_s[name], name))
    assert by_finish != sorted(real.last_token_s)  # not first come, first served

"""The learner and the judge in the loop: model and vLLM's scheduler learn the same and decide the same, every step."""

from __future__ import annotations

from dataclasses import replace

import hypothesis
import pytest

pytest.importorskip("vllm")

import numpy as np

from parsim.engine.config import EngineConfig
from parsim.engine.step_time import StepTime
from parsim.learner import judge, online
from parsim.scheduler.policy import POLICIES, Policy
from parsim.validate.parity import drive, model, strategies
from parsim.validate.parity.case import Case, CaseRequest
from parsim.validate.parity.check import check
from parsim.validate.parity.scorer import LearnerInTurn

pytestmark = pytest.mark.vllm


def workload(seed: int, count: int, turned: bool = False) -> list[CaseRequest]:
    """Requests whose length hangs on the family that their prefix names; `turned`: scores say the opposite."""
    rng = np.random.default_rng(seed)
    requests, ticks = [], 0
    for number in range(count):
        ticks += int(rng.integers(0, 5))
        family = int(rng.integers(0, 6))
        output = int(1 + family * 5 + rng.integers(0, 4))
        requests.append(
            CaseRequest(
                request_id=f"r{number}",
                arrival_s=ticks * strategies.TICK_S,
                prompt_tokens=int(rng.integers(8, 20)),
                output_tokens=output,
                score=float(-output if turned and number > count // 2 else output),
                prefix_hashes=[family],
                abort_s=(ticks + 40) * strategies.TICK_S if rng.random() < 0.05 else None,
            )
        )
    return requests


def engine(async_scheduling: bool, blocks: int) -> EngineConfig:
    return EngineConfig(
        max_num_seqs=6,
        max_num_batched_tokens=64,
        block_size=8,
        num_gpu_blocks=blocks,
        max_model_len=64,
        enable_prefix_caching=True,
        async_scheduling=async_scheduling,
        step_time=StepTime(base_s=strategies.TICK_S / 2, decode_seq_s=2.0**-14),
    )


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("victim", ["last", "worst"])
def test_what_is_learned_and_decided_is_equal_in_every_step(
    async_scheduling: bool, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learners: list[LearnerInTurn] = []

    class Kept(LearnerInTurn):
        def __init__(self) -> None:
            super().__init__()
            learners.append(self)

    monkeypatch.setattr(drive, "LearnerInTurn", Kept)
    monkeypatch.setattr(model, "LearnerInTurn", Kept)
    policy = replace(POLICIES["online"], victim=victim, starvation_threshold_s=20.0)
    case = Case(
        engine=engine(async_scheduling, 16), policy=policy, requests=workload(1, 400), hash_block_size=8
    )
    checked = check(case)
    assert checked.difference is None, checked.difference
    assert checked.vllm.preemptions > 10
    real, own, fast = learners
    assert real.learned == own.learned == fast.learned > 350
    states = [learner.state() for learner in learners]
    assert all((state[name] == states[0][name]).all() for state in states[1:] for name in state)
    first_come = check(case.model_copy(update={"policy": POLICIES["fcfs"]}))
    assert [s.scheduled for s in first_come.model.steps] != [s.scheduled for s in checked.model.steps]


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_scores_that_turn_fall_out_of_use_at_the_same_step(async_scheduling: bool) -> None:
    policy = replace(POLICIES["pars"], do_no_harm=True, victim="worst")
    case = Case(
        engine=engine(async_scheduling, 16),
        policy=policy,
        requests=workload(2, 500, turned=True),
        hash_block_size=8,
    )
    checked = check(case)
    assert checked.difference is None, checked.difference


@pytest.mark.parametrize("name", ["online", "pars"])
def test_random_cases_with_a_hasty_judge_are_equal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner that speaks and a judge that turns after every second request, so that small cases see both often."""
    monkeypatch.setattr(online, "LEAST", 2)
    monkeypatch.setattr(judge, "EVERY", 2)
    monkeypatch.setattr(judge, "TRUST_AT", -3.0)
    policy: Policy = replace(POLICIES[name], do_no_harm=True)
    turns = [0]
    decide = judge.ScoreJudge._decide

    def counting(self: judge.ScoreJudge, *taus: object) -> None:
        before = self.trusted
        decide(self, *taus)  # type: ignore[arg-type]
        turns[0] += self.trusted != before

    monkeypatch.setattr(judge.ScoreJudge, "_decide", counting)

    def equal(case: Case) -> None:
        ranked = replace(
            policy, victim=case.policy.victim, starvation_threshold_s=case.policy.starvation_threshold_s
        )
        checked = check(case.model_copy(update={"policy": ranked, "scoring": None}))
        assert checked.difference is None, checked.difference

    for prefix_caching, async_scheduling in ((False, False), (True, True)):
        corner = strategies.Corner("pars", "worst", prefix_caching, async_scheduling)
        drawn = hypothesis.given(strategies.cases(corner))(equal)
        hypothesis.settings(max_examples=15, deadline=None, database=None)(hypothesis.seed(3)(drawn))()
    assert turns[0] > 5 or name == "online"  # few requests of a small case finish before the others arrive

"""Orders of one's own and predictors of one's own name inside vLLM, and through parity."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from typer.testing import CliRunner

from parsim.engine.config import EngineConfig
from parsim.engine.step_time import StepTime
from parsim.scheduler.settings import SCHEDULER_CLASS
from parsim.validate.parity.bare import assemble

pytestmark = pytest.mark.vllm


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "served.py").write_text(
        "def shortest_prompt(request):\n    return request.prompt_tokens\n"
        "def odd(request):\n    return 1 / (request.prompt_tokens % 2)\n"
        "def oldest(request, now_s):\n    return -(now_s - request.arrival_s) / request.prompt_tokens\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("served", None)


class Harness:
    """A scheduler without an engine, two requests at a time."""

    def __init__(self, settings: dict[str, Any]) -> None:
        config = EngineConfig(
            max_num_seqs=2,
            max_num_batched_tokens=64,
            block_size=4,
            enable_prefix_caching=False,
            async_scheduling=False,
            num_gpu_blocks=64,
            max_model_len=128,
            step_time=StepTime(base_s=1.0),
        )
        self.scheduler, _ = assemble(config, SCHEDULER_CLASS, settings)
        self.scheduler.clock = lambda: 0.0

    def add(self, name: str, score: float | None = None, prompt: int = 4) -> None:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        extra = None if score is None else {"pars_score": score}
        parameters = SamplingParams(max_tokens=3, ignore_eos=True, extra_args=extra)
        self.scheduler.add_request(Request(name, list(range(prompt)), parameters, None, arrival_time=0.0))

    def waiting(self) -> list[str]:
        return [request.request_id for request in self.scheduler.waiting]


def test_a_function_orders_vllms_queue(own: None) -> None:
    harness = Harness({"policy": "served:shortest_prompt"})
    for name, prompt in (("long", 40), ("short", 3), ("middle", 9)):
        harness.add(name, prompt=prompt)
    assert harness.waiting() == ["short", "middle", "long"]
    assert list(harness.scheduler.schedule().num_scheduled_tokens) == ["short", "middle"]


def test_a_python_function_does_as_well() -> None:
    harness = Harness({"policy": lambda request: -request.prompt_tokens})
    harness.add("short", prompt=3)
    harness.add("long", prompt=40)
    assert harness.waiting() == ["long", "short"]


def test_a_predictor_of_ones_own_ranks_by_the_scores_that_requests_carry() -> None:
    harness = Harness({"policy": "score.mine"})
    harness.add("long", 90)
    harness.add("short", 10)
    assert harness.waiting() == ["short", "long"]
    assert harness.scheduler.stats()["scored"] == 2


def test_a_request_on_which_the_function_fails_goes_last_and_serving_goes_on(own: None) -> None:
    harness = Harness({"policy": "served:odd"})
    for name, prompt in (("fails", 4), ("a", 3), ("b", 5)):
        harness.add(name, prompt=prompt)
    assert harness.waiting() == ["a", "b", "fails"]
    assert harness.scheduler.stats()["order_failures"] == 1


@pytest.mark.parametrize("policy", ["hrrn(pars)", "pars", "prompt-sjf"])
def test_lengths_learned_from_what_finishes_are_the_same_in_model_and_vllm(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random cases with guards by ratio and ageing, where lengths are known after 2 requests instead of 32."""
    from parsim.scheduler import expected
    from parsim.validate.parity.search import search

    monkeypatch.setattr(expected, "FIRST", 2)
    preempted = 0

    def passed(checked: Any) -> None:
        nonlocal preempted
        preempted += checked.vllm.preemptions

    assert search(24, 7, (policy,), passed) is None
    assert preempted


@pytest.mark.parametrize("order", ["shortest_prompt", "oldest"])
def test_parity_takes_a_function(own: None, order: str) -> None:
    from parsim.validate.cli import app

    done = CliRunner().invoke(app, ["parity", "--policy", f"served:{order}", "--cases", "16", "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert "16 random cases" in done.output and f"served:{order}" in done.output

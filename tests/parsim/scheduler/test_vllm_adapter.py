"""`ParsScheduler` inside vLLM's own machinery, without an engine."""

from __future__ import annotations

import logging
import random
import sys
import time
import types
from typing import Any

import pytest

pytest.importorskip("vllm")

from parsim.engine.config import EngineConfig
from parsim.engine.step_time import StepTime
from parsim.scheduler.features import Features
from parsim.scheduler.settings import SCHEDULER_CLASS
from parsim.validate.parity.bare import assemble

pytestmark = pytest.mark.vllm


class Harness:
    """A scheduler with its clock at hand; each `step` runs one batch and samples token 7 where one is due."""

    def __init__(self, settings: dict[str, Any] | None = None, **engine: Any) -> None:
        given = {
            "max_num_seqs": 2,
            "max_num_batched_tokens": 64,
            "block_size": 4,
            "num_gpu_blocks": 64,
            "max_model_len": 128,
            "async_scheduling": False,
            "enable_prefix_caching": False,
        }
        self.config = EngineConfig(**{**given, **engine}, step_time=StepTime(base_s=1.0))
        self.scheduler, _ = assemble(self.config, SCHEDULER_CLASS, {"do_no_harm": False, **(settings or {})})
        self.now_s = 0.0
        self.scheduler.clock = lambda: self.now_s

    def add(self, name: str, score: Any = None, prompt: int = 4, output: int = 3, **options: Any) -> None:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        self.scheduler.add_request(
            Request(
                request_id=name,
                prompt_token_ids=list(range(prompt)),
                sampling_params=SamplingParams(
                    max_tokens=output,
                    ignore_eos=True,
                    extra_args=None if score is None else {"pars_score": score},
                ),
                pooling_params=None,
                arrival_time=self.now_s,
                **options,
            )
        )

    def step(self) -> list[str]:
        from vllm.v1.outputs import ModelRunnerOutput

        output = self.scheduler.schedule()
        ids = list(output.num_scheduled_tokens)
        tokens = [[] if self.scheduler.requests[i].is_prefill_chunk else [7] for i in ids]
        self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=ids, req_id_to_index={i: n for n, i in enumerate(ids)}, sampled_token_ids=tokens
            ),
        )
        return ids

    def abort(self, *names: str) -> None:
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(list(names), RequestStatus.FINISHED_ABORTED)

    def waiting(self) -> list[str]:
        return [request.request_id for request in self.scheduler.waiting]

    def free_blocks(self) -> int:
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_one_class_name_gives_the_variant_of_the_engines_mode(async_scheduling: bool) -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    from parsim.scheduler.vllm import ParsScheduler

    scheduler = Harness(async_scheduling=async_scheduling).scheduler
    assert isinstance(scheduler, ParsScheduler) and isinstance(scheduler, Scheduler)
    assert isinstance(scheduler, AsyncScheduler) == async_scheduling


def test_shortest_score_first_and_a_missing_or_broken_score_ranks_in_the_middle() -> None:
    harness = Harness()
    harness.add("long", 90)
    harness.add("short", "10")
    harness.add("medium", 50)
    harness.add("unscored")
    harness.add("broken", float("nan"))
    harness.add("text", "soon")
    harness.add("middle", 60.0)
    assert harness.waiting() == ["short", "broken", "medium", "text", "unscored", "middle", "long"]
    assert harness.step() == ["short", "broken"]
    stats = harness.scheduler.stats()
    assert (stats["requests"], stats["scored"], stats["unscored"]) == (7, 4, 3)


def test_score_from_vllms_priority() -> None:
    harness = Harness({"score_source": "priority"})
    harness.add("second", priority=5)
    harness.add("first", priority=-3)
    assert harness.waiting() == ["first", "second"]


def test_prompt_sjf_needs_no_score() -> None:
    harness = Harness({"policy": "prompt-sjf"})
    harness.add("long", prompt=40)
    harness.add("short", prompt=3)
    assert harness.waiting() == ["short", "long"]
    assert harness.scheduler.stats()["unscored"] == 0


def test_the_guard_promotes_after_the_threshold_not_at_it() -> None:
    harness = Harness({"starvation_threshold_s": 10})
    harness.add("starved", 1e6)
    for number in range(6):
        harness.add(f"short{number}", number)
    harness.now_s = 10.0
    assert harness.step() == ["short0", "short1"]
    harness.now_s = 10.1
    harness.abort("short0", "short1")
    assert harness.step() == ["starved", "short2"]


def test_finished_aborted_and_preempted_requests_leave_nothing_behind() -> None:
    harness = Harness(num_gpu_blocks=6, max_num_seqs=4, max_model_len=20)
    free = harness.free_blocks()
    for number in range(8):
        harness.add(f"r{number}", number, prompt=6, output=10)
    steps = 0
    while harness.scheduler.has_requests():
        harness.step()
        steps += 1
        if steps == 3:
            harness.abort("r0", "r5", "never-seen")
    assert steps > 3
    scheduler = harness.scheduler
    assert scheduler.waiting.entries == {} and scheduler.requests == {} and not scheduler.running
    assert harness.free_blocks() == free
    guard = scheduler.waiting.ranked.guard
    assert all(entry.request is None for entry in guard._by_arrival)


def test_victim_worst_takes_the_longest_and_spares_the_promoted() -> None:
    settings = {"victim": "worst", "starvation_threshold_s": 100}
    harness = Harness(settings, num_gpu_blocks=10, max_num_seqs=3, max_model_len=32)
    harness.add("longest", 9, prompt=11, output=12)
    harness.now_s = 50.0
    harness.add("short", 1, prompt=11, output=12)
    harness.add("middle", 5, prompt=11, output=12)
    harness.now_s = 60.0
    assert harness.step() == ["short", "middle", "longest"]  # 9 blocks: full after one more token each
    assert harness.step() == ["short", "middle", "longest"]
    assert harness.step() == ["short", "middle"]
    assert harness.waiting() == ["longest"]

    harness = Harness(settings, num_gpu_blocks=10, max_num_seqs=3, max_model_len=32)
    harness.add("longest", 9, prompt=11, output=12)
    harness.now_s = 50.0
    harness.add("short", 1, prompt=11, output=12)
    harness.add("middle", 5, prompt=11, output=12)
    harness.now_s = 100.5
    assert harness.step() == ["longest", "short", "middle"]
    harness.step()
    assert harness.step() == ["longest", "short"]
    assert harness.waiting() == ["middle"]


class LateScorer:
    """Scores a prompt by a table, one poll after it is told to be ready."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.ended: list[tuple[str, int, bool | None]] = []
        self.ready: dict[str, float] = {}
        self.closed = False
        self.error: Exception | None = None

    def submit(self, request_id: str, features: Features) -> None:
        if self.error:
            raise self.error
        self.asked.append(request_id)

    def poll(self) -> dict[str, float]:
        ready, self.ready = self.ready, {}
        return ready

    def finished(self, request_id: str, output_tokens: int, stopped: bool | None) -> None:
        self.ended.append((request_id, output_tokens, stopped))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def late_scorer(monkeypatch: pytest.MonkeyPatch) -> LateScorer:
    scorer = LateScorer()
    module = types.ModuleType("late_scorer")
    module.create = lambda model: scorer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "late_scorer", module)
    return scorer


def test_a_late_score_moves_a_waiting_request(late_scorer: LateScorer) -> None:
    harness = Harness({"scorer": "late_scorer:create"}, max_num_seqs=1)
    harness.add("running", 1, output=9)
    harness.step()
    for name in ("a", "b", "c"):
        harness.add(name)
    harness.add("scored", 5)
    assert late_scorer.asked == ["a", "b", "c"]
    late_scorer.ready = {"a": 8.0, "b": 2.0, "c": 4.0, "gone": 1.0}
    harness.step()
    assert harness.waiting() == ["b", "c", "scored", "a"]
    assert harness.scheduler.stats()["scored_late"] == 3
    harness.scheduler.shutdown()
    assert late_scorer.closed


def test_the_first_answer_counts_and_a_score_of_ones_own_stays(late_scorer: LateScorer) -> None:
    harness = Harness({"scorer": "late_scorer:create"}, max_num_seqs=1)
    harness.add("running", 1, output=9)
    harness.step()
    harness.add("asked")
    harness.add("own", 5)
    late_scorer.ready = {"asked": 8.0, "own": 99.0, "running": 99.0}
    harness.step()
    late_scorer.ready = {"asked": 1.0}
    harness.step()
    assert harness.waiting() == ["own", "asked"]
    assert harness.scheduler.stats()["scored_late"] == 1
    harness.add("a middle of 1, 5 and 8")
    late_scorer.ready = {"a middle of 1, 5 and 8": float("nan")}
    harness.now_s = 3.0
    harness.step()
    assert harness.waiting() == ["a middle of 1, 5 and 8", "own", "asked"]  # a tie with 5, first by its id


def test_a_scorer_out_of_its_mind_leaves_nothing_behind(late_scorer: LateScorer) -> None:
    """Random failures, silence, nonsense and answers for others, while requests are preempted and aborted."""
    rng = random.Random(3)
    harness = Harness(
        {"scorer": "late_scorer:create", "victim": "worst", "starvation_threshold_s": 20},
        max_num_seqs=6,
        num_gpu_blocks=14,
    )

    def poll() -> Any:
        known = [*late_scorer.asked[-9:], "gone"]
        answers = [float("nan"), None, "x", 10**400, 1.0, 2.5, [1]]
        kind = rng.randrange(5)
        if kind == 0:
            raise RuntimeError("now and then")
        return (
            None if kind == 1 else {rng.choice(known): rng.choice(answers) for _ in range(rng.randrange(4))}
        )

    late_scorer.poll = poll  # type: ignore[method-assign]
    for number in range(150):
        for part in range(rng.randrange(2)):
            harness.add(f"{number}-{part}", prompt=rng.randrange(1, 20), output=rng.randrange(1, 20))
        if harness.scheduler.requests and rng.random() < 0.1:
            harness.abort(rng.choice(list(harness.scheduler.requests)))
        harness.step()
        harness.now_s += 0.5
    while harness.scheduler.requests:
        harness.step()
        harness.now_s += 0.5
    stats = harness.scheduler.stats()
    assert stats["scorer_given_up"] == 1 and stats["tracked"] == stats["waiting"] == 0
    assert harness.free_blocks() == 13
    harness.now_s += 100
    harness.step()
    assert harness.scheduler.waiting.ranked.next_due_s() == float("inf")


def test_a_failing_scorer_does_not_stop_serving(late_scorer: LateScorer) -> None:
    late_scorer.error = RuntimeError("no weights")
    harness = Harness({"scorer": "late_scorer:create"})
    for number in range(12):
        harness.add(f"r{number:02}")
    served: set[str] = set()
    while harness.scheduler.has_requests():
        served.update(harness.step())
    assert len(served) == 12
    stats = harness.scheduler.stats()
    assert stats["scorer_failures"] == 5 and stats["scorer_given_up"] == 1 and stats["unscored"] == 12


def test_an_untested_version_warns_once_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from parsim.scheduler import vllm_version

    monkeypatch.setattr(vllm_version, "installed_version", lambda: "9.9.9")
    logger = logging.getLogger("test.version")
    assert not vllm_version.check_version(logger)
    (record,) = caplog.records
    assert "9.9.9 was not tested" in record.getMessage() and "\n" not in record.getMessage()
    monkeypatch.setattr(vllm_version, "installed_version", lambda: "0.32.0")
    assert vllm_version.check_version(logger) and len(caplog.records) == 1


def test_a_missing_method_fails_at_start_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    monkeypatch.delattr(Scheduler, "_preempt_request")
    with pytest.raises(RuntimeError, match=r"has no Scheduler\._preempt_request\(\)"):
        Harness()


def test_a_wrong_setting_fails_at_start() -> None:
    with pytest.raises(ValueError, match="did you mean 'victim'"):
        Harness({"victm": "last"})


def test_metrics_are_served_where_a_port_is_set() -> None:
    import socket
    import urllib.request

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    harness = Harness({"metrics_port": port})
    harness.add("a", 3)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert "parsim_scored 1.0" in text and "parsim_waiting 1.0" in text


PROMPTS = (
    "Which of these is the capital of France? A) Paris B) Rome C) Berlin. Answer with the letter.",
    "Is 7 a prime number? Yes or no.",
    "Prove that the sum of the angles of any triangle is 180 degrees, and explain each step in detail.",
    "A train leaves at 9:40 at 60 km/h, another at 10:15 at 85 km/h. Find when and where they meet, step by step.",
    "Name one colour.",
)


def test_the_shipped_predictor_scores_inside_the_scheduler() -> None:
    """Requests without a score wait behind two that run; once the scorer's thread has answered, they stand in the
    order of the predictor's own scores, and scheduling never waited for it."""
    pytest.importorskip("transformers")
    from parsim.predictor.ranker.encoder import MissingEncoder
    from parsim.predictor.scoring.predictor import load_predictor
    from parsim.predictor.scoring.scorer import BatchScorer

    try:
        predictor = load_predictor("pars")
    except MissingEncoder as error:
        pytest.skip(str(error))
    scorer = BatchScorer(lambda texts: predictor.score(texts).tolist(), lambda ids: PROMPTS[len(ids) - 1])
    harness = Harness()
    harness.scheduler.serve_by(harness.scheduler.settings, scorer)
    harness.add("a", 0.0, output=100)
    harness.add("b", 0.0, output=100)
    harness.step()
    for number in range(len(PROMPTS)):
        harness.add(f"p{number}", prompt=number + 1)
    deadline = time.monotonic() + 60
    while harness.scheduler.stats()["scored_late"] < len(PROMPTS) and time.monotonic() < deadline:
        assert sorted(harness.step()) == ["a", "b"]
        time.sleep(0.2)
    scores = predictor.score(list(PROMPTS)).tolist()
    assert harness.waiting() == [f"p{n}" for n in sorted(range(len(PROMPTS)), key=scores.__getitem__)]
    assert harness.scheduler.stats()["scorer_failures"] == 0
    harness.scheduler.shutdown()
    assert not scorer._worker.is_alive()

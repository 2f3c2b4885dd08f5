"""`ParsScheduler` with the learner, the judge and shadows, bare: it learns, does no harm, outlives faults."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from parsim.learner.judge import ScoreJudge
from parsim.learner.online import LEAST, OnlineLearner
from parsim.scheduler.features import Features
from parsim.scheduler.scoring import FAILURES_IN_A_ROW

_place = Path(__file__).with_name("test_vllm_adapter.py")
_spec = importlib.util.spec_from_file_location("vllm_adapter_harness", _place)
assert _spec is not None and _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
Harness = _module.Harness

pytestmark = pytest.mark.vllm

LONG, SHORT = 30, 2


def request(harness: Any, name: str, *, long: bool, tokens: int = 0, **extra: Any) -> None:
    """A request whose length its tokens tell: 5s for long ones, 9s for short ones."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    harness.scheduler.add_request(
        Request(
            request_id=name,
            prompt_token_ids=[5 if long else 9] * 4,
            sampling_params=SamplingParams(
                max_tokens=tokens or (LONG if long else SHORT), ignore_eos=True, extra_args=extra or None
            ),
            pooling_params=None,
            arrival_time=harness.now_s,
        )
    )


def drain(harness: Any) -> None:
    steps = 0
    while harness.scheduler.has_requests():
        harness.step()
        harness.now_s += 1.0
        steps += 1
        assert steps < 20_000


class InTurn(OnlineLearner):
    """The learner without a thread: what it says comes at the next poll."""

    def close(self) -> None:
        """Nothing to stop."""


def serve(harness: Any, count: int, seed: int, **score: Any) -> None:
    """Requests come two a step, a third of them long, and all are served; `score` by length: `short`, `long`."""
    rng = random.Random(seed)
    for number in range(count):
        long = rng.random() < 0.33
        extra = {"pars_score": score["long" if long else "short"]} if score else {}
        request(harness, f"{seed}-{number}", long=long, **extra)
        if number % 2:
            harness.step()
            harness.now_s += 1.0
    drain(harness)


def test_it_learns_while_it_serves_and_then_puts_the_short_ones_first() -> None:
    harness = Harness({"scorer": "online", "do_no_harm": True}, max_num_seqs=8)
    harness.scheduler.serve_by(harness.scheduler.settings, InTurn())
    serve(harness, 300, 1)
    assert harness.scheduler.stats()["scores_trusted"] == 1
    assert harness.scheduler.stats()["scores_tau"] > 0.5
    for number in range(30):
        request(harness, f"late-{number}", long=number % 2 == 0)
    harness.step()
    waiting = [int(name.split("-")[1]) % 2 for name in harness.waiting()]
    assert waiting == sorted(waiting, reverse=True)  # all short ones stand before all long ones
    drain(harness)
    assert harness.scheduler.stats()["tracked"] == 0


def test_the_thread_learns_the_same() -> None:
    harness = Harness({"scorer": "online"}, max_num_seqs=8)
    serve(harness, 60, 1)
    learner = harness.scheduler._feed._scorer.learner
    deadline = time.monotonic() + 20
    while learner.learned < 60 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert learner.learned == 60 > LEAST
    harness.scheduler.shutdown()


def test_scores_that_rank_backwards_are_not_used_and_come_back_when_they_rank() -> None:
    harness = Harness({"do_no_harm": True, "starvation_threshold_s": None}, max_num_seqs=8)
    serve(harness, 200, 1, short=9.0, long=1.0)
    stats = harness.scheduler.stats()
    assert stats["scores_trusted"] == 0 and stats["scores_tau"] < -0.5
    request(harness, "a", long=False, pars_score=9.0)
    request(harness, "b", long=True, pars_score=1.0)
    assert harness.waiting() == ["a", "b"]
    drain(harness)
    serve(harness, 600, 2, short=1.0, long=9.0)
    assert harness.scheduler.stats()["scores_trusted"] == 1
    request(harness, "long", long=True, pars_score=9.0)
    request(harness, "short", long=False, pars_score=1.0)
    assert harness.waiting() == ["short", "long"]
    drain(harness)


def test_a_client_that_claims_to_be_short_stops_overtaking() -> None:
    harness = Harness({"do_no_harm": True, "starvation_threshold_s": None}, max_num_seqs=8)
    rng = random.Random(5)
    for number in range(500):
        long = rng.random() < 0.33
        liar = rng.random() < 0.3
        request(
            harness,
            f"{number}",
            long=long,
            pars_score=-1e9 if liar else (9.0 if long else 1.0) + rng.random(),
            pars_app="liar" if liar else f"client {rng.randrange(5)}",
        )
        if number % 2:
            harness.step()
            harness.now_s += 1.0
    drain(harness)
    stats = harness.scheduler.stats()
    assert stats["scores_trusted"] == 1 and 80 < stats["claims_set_aside"] < 200
    request(harness, "honest", long=False, pars_score=1.0, pars_app="client 1")
    request(harness, "lie", long=True, pars_score=-1e9, pars_app="liar")
    assert harness.waiting()[0] == "honest"
    drain(harness)


def test_clients_scores_are_ignored_where_the_scorer_alone_counts() -> None:
    harness = Harness({"score_source": "scorer", "scorer": "online"})
    harness.scheduler.serve_by(harness.scheduler.settings, InTurn())
    request(harness, "a", long=True, pars_score=7.0)
    assert harness.scheduler.waiting.entries["a"].score is None
    assert harness.scheduler.stats()["unscored"] == 1


def test_a_priority_of_zero_is_a_score_only_where_that_is_said() -> None:
    for said, expected in ((False, None), (True, 0.0)):
        harness = Harness({"score_source": "priority", "priority_zero": said})
        request(harness, "a", long=True)
        assert harness.scheduler.waiting.entries["a"].score == expected


def test_children_of_n_keep_the_score() -> None:
    from vllm import SamplingParams
    from vllm.v1.engine.parallel_sampling import ParentRequest

    parent = types.SimpleNamespace(
        request_id="p",
        external_req_id="p",
        params=SamplingParams(n=3, extra_args={"pars_score": 4.0}),
    )
    child = ParentRequest(parent)._get_child_sampling_params(1)  # type: ignore[arg-type]
    assert child.extra_args == {"pars_score": 4.0} and child.n == 1


def test_how_a_request_ended_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm import SamplingParams
    from vllm.v1.request import Request, RequestStatus

    from parsim.scheduler.vllm_request import ending_of, features_of

    def ended(status: RequestStatus, **parameters: Any) -> tuple[int, bool | None]:
        one = Request("r", [1, 2], SamplingParams(max_tokens=50, **parameters), None, arrival_time=0.0)
        one.append_output_token_ids([7, 7, 7])
        one.status = status
        return ending_of(one)

    assert ended(RequestStatus.FINISHED_STOPPED) == (3, True)
    assert ended(RequestStatus.FINISHED_LENGTH_CAPPED) == (3, False)
    assert ended(RequestStatus.FINISHED_LENGTH_CAPPED, ignore_eos=True) == (3, True)
    assert ended(RequestStatus.FINISHED_ABORTED) == (3, None)
    assert ended(RequestStatus.FINISHED_ABORTED, stop=["END"], detokenize=True) == (3, True)
    assert ended(RequestStatus.FINISHED_ERROR) == (3, None)

    def features(**parameters: Any) -> Features:
        return features_of(Request("r", [1, 2], SamplingParams(**parameters), None, arrival_time=0.0), 128)

    assert features(max_tokens=50).max_tokens == 50
    assert features(max_tokens=126).max_tokens is None  # the context alone limits it
    assert features(max_tokens=50, ignore_eos=True).max_tokens is None  # it would be the length itself
    assert features(max_tokens=5, extra_args={"pars_app": "chat"}).app == "chat"


class Mad:
    """A scorer of which every method fails, answers nonsense or works, at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.learner = InTurn()

    def _mood(self) -> None:
        if self.rng.random() < 0.1:
            raise RuntimeError("now and then")

    def submit(self, request_id: str, features: Features) -> None:
        self._mood()
        self.learner.submit(request_id, features)

    def poll(self) -> Any:
        self._mood()
        found = self.learner.poll()
        for name in found:
            found[name] = self.rng.choice([found[name], float("nan"), -1e300, 1e300, None, "x"])  # type: ignore[assignment]
        return self.rng.choice([found, found, None, {"gone": 1.0}])

    def finished(self, request_id: str, output_tokens: int, stopped: bool | None) -> None:
        self._mood()
        self.learner.finished(request_id, output_tokens, stopped)

    def close(self) -> None:
        """Nothing to stop."""


@pytest.mark.parametrize("seed", [1, 2])
def test_no_fault_of_a_scorer_loses_a_request_or_leaves_anything_behind(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("mad")
    module.create = lambda model: Mad(seed)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mad", module)
    monkeypatch.setattr(
        "parsim.scheduler.scoring.FAILURES_IN_A_ROW", 10**9
    )  # never given up: it goes on for ever
    settings = {
        "scorer": "mad:create",
        "do_no_harm": True,
        "victim": "worst",
        "shadow": ["mad:create", "online"],
    }
    harness = Harness(settings, max_num_seqs=6, num_gpu_blocks=40)
    rng = random.Random(seed)
    served: set[str] = set()
    asked, aborted = set(), set()
    for number in range(400):
        for part in range(rng.randrange(2)):
            name = f"{number}-{part}"
            asked.add(name)
            request(
                harness, name, long=rng.random() < 0.5, tokens=rng.randrange(1, 30), pars_app=f"app {number}"
            )
        if harness.scheduler.requests and rng.random() < 0.1:
            gone = rng.choice(list(harness.scheduler.requests))
            aborted.add(gone)
            harness.abort(gone)
        served.update(harness.step())
        harness.now_s += 0.5
    while harness.scheduler.requests:
        served.update(harness.step())
        harness.now_s += 0.5
    assert served | aborted == asked
    scheduler = harness.scheduler
    stats = scheduler.stats()
    assert stats["tracked"] == stats["waiting"] == 0 and stats["scorer_failures"] > FAILURES_IN_A_ROW
    judges: list[ScoreJudge] = [scheduler.judge, *(shadow.judge for shadow in scheduler.shadows)]
    assert all(not judge._running and not judge._claimed for judge in judges)
    assert all(not shadow._open for shadow in scheduler.shadows)
    assert harness.free_blocks() == 39
    scheduler.shutdown()


def test_a_shadow_is_measured_and_not_obeyed() -> None:
    harness = Harness({"policy": "fcfs", "shadow": ["online"]}, max_num_seqs=8)
    scheduler = harness.scheduler
    scheduler.shadows[0].feed.close()
    scheduler.shadows[0].feed._scorer = InTurn()
    scheduler.shadows[0].feed.given_up = False
    serve(harness, 300, 1)
    stats = scheduler.stats()
    assert stats["shadow_tau_online"] > 0.5 and stats["shadow_trusted_online"] == 1
    for number in range(12):
        request(harness, f"{number:02}", long=number % 2 == 0)
    assert harness.waiting() == [f"{number:02}" for number in range(12)]
    drain(harness)


def test_what_is_served_is_recorded_and_read_as_a_trace(tmp_path: Path) -> None:
    from parsim.traces import read_trace

    settings = {"policy": "fcfs", "shadow": ["online"], "record": str(tmp_path)}
    harness = Harness(settings, max_num_seqs=8, num_gpu_blocks=200)
    serve(harness, 40, 1)
    request(harness, "gone", long=True, pars_app="shop")
    harness.step()
    harness.step()
    harness.abort("gone")
    request(harness, "never served", long=True)
    harness.abort("never served")
    scheduler = harness.scheduler
    assert not scheduler._log._scheduled and not scheduler._log._first and not scheduler._log._awaited
    scheduler.shutdown()
    trace = read_trace(tmp_path)
    assert len(trace) == 41
    rows = trace.frame
    assert set(rows["output_tokens"].to_list()) == {SHORT, LONG}  # the aborted one had come to 2
    assert rows.filter(rows["request_id"] == "gone")["client_id"].to_list() == ["shop"]
    assert rows["prompt_tokens"].to_list() == [4] * 41
    assert not trace.has_prefix_hashes  # no prompt fills a block
    assert trace.score_names in (["learned"], [])  # the learner's thread may not have got to them
    (file,) = tmp_path.iterdir()
    for line in file.read_text().splitlines():
        row = json.loads(line)
        assert row["arrival_s"] <= row["first_scheduled_s"] <= row["first_token_s"] <= row["finish_s"]


def test_dashboard_and_alerts_ask_for_metrics_that_there_are() -> None:
    harness = Harness({"policy": "online", "shadow": ["online"], "do_no_harm": True})
    there = {f"parsim_{name}" for name in harness.scheduler.stats()}
    harness.scheduler.shutdown()
    folder = Path(__file__).parents[3] / "docs/grafana"
    for name in ("parsim.json", "alerts.yaml"):
        asked = set(re.findall(r"parsim_[a-z_]+", (folder / name).read_text(encoding="utf-8")))
        families = {one for one in asked if one.endswith("_")}  # of a pattern
        assert asked - families <= there and len(asked) > 4
        assert all(any(one.startswith(family) for one in there) for family in families)


def test_counters_are_left_where_vllms_own_metrics_find_them(tmp_path: Path) -> None:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector

    code = (
        "from parsim.scheduler.vllm_metrics import SharedGauges\n"
        "assert SharedGauges.wanted()\n"
        "SharedGauges().update(lambda: {'scores_tau': 0.25, 'learner_tau_words': float('nan')})\n"
    )
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))
    assert b"parsim_scores_tau 0.25" in generate_latest(registry)

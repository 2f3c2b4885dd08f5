"""The learner on its thread: order of calls, failures, a full queue, and its state on disk."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from parsim.learner import worker
from parsim.learner.online import LEAST, OnlineLearner
from parsim.learner.worker import LearnerThread, create
from parsim.scheduler.features import Features


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline, "the thread does not get there"
        time.sleep(0.005)


def features(number: int) -> Features:
    return Features(prompt_token_ids=[number % 7, 50, number % 3], prompt_tokens=3)


def teach(scorer: LearnerThread, count: int) -> None:
    for number in range(count):
        scorer.submit(f"r{number}", features(number))
        scorer.finished(f"r{number}", 5 + 20 * (number % 7), True)


def test_it_gives_what_the_learner_gives_when_called_in_turn() -> None:
    scorer, alone = LearnerThread(OnlineLearner()), OnlineLearner()
    teach(scorer, 60)
    scorer.submit("asked", features(3))
    for number in range(60):
        alone.submit(f"r{number}", features(number))
        alone.finished(f"r{number}", 5 + 20 * (number % 7), True)
    alone.submit("asked", features(3))
    found: dict[str, float] = {}
    until(lambda: found.update(scorer.poll()) or "asked" in found)
    scorer.close()
    assert found == alone.poll() and len(found) == 60 - LEAST + 1
    assert not scorer._thread.is_alive()


def test_what_it_learned_is_there_after_a_restart_and_a_damaged_state_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state" / "learner.npz"
    first = LearnerThread(OnlineLearner(), path)
    teach(first, 40)
    until(lambda: first.learner.learned == 40)
    first.close()
    second = LearnerThread(OnlineLearner(), path)
    assert second.learner.learned == 40
    second.close()
    path.write_bytes(path.read_bytes()[:-4000])

    with caplog.at_level(logging.WARNING, logger="vllm.parsim"):
        third = LearnerThread(OnlineLearner(), path)
    assert third.learner.learned == 0
    (record,) = caplog.records
    assert "starts from nothing" in record.getMessage() and "\n" not in record.getMessage()
    teach(third, 5)
    until(lambda: third.learner.learned == 5)
    third.close()


class Broken(OnlineLearner):
    """Fails on every third request; stands still while `held`."""

    def __init__(self) -> None:
        super().__init__()
        self.held = threading.Event()
        self.held.set()

    def submit(self, request_id: str, features: Features) -> None:
        self.held.wait()
        if int(request_id[1:]) % 3 == 0:
            raise RuntimeError("now and then")
        super().submit(request_id, features)


def test_a_failing_call_is_counted_and_the_next_is_carried_out() -> None:
    scorer = LearnerThread(Broken())
    teach(scorer, 30)
    until(lambda: scorer.learner.learned == 20)
    assert scorer.stats.failures == 10
    scorer.close()


def test_a_thread_that_stands_still_holds_nobody_up_and_its_queue_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "MOST_WAITING", 50)
    learner = Broken()
    learner.held.clear()
    scorer = LearnerThread(learner)
    teach(scorer, 500)
    assert scorer.poll() == {} and len(scorer._calls) <= 50 and scorer.stats.dropped >= 900
    learner.held.set()
    scorer.close()
    assert not scorer._thread.is_alive()


@pytest.mark.parametrize("place", ["", "file/state.npz"])
def test_a_state_that_cannot_be_saved_leaves_the_learner_at_work(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    thread = create("model", str(tmp_path / place))
    thread._save()
    thread.close()
    assert thread.stats.saved == 0 and thread.stats.failures >= 1


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04junk", b"a model of somebody's"])
def test_a_file_that_is_no_state_is_kept_beside_the_new_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").write_bytes(content)
    create("model", str(tmp_path / "state")).close()
    assert (tmp_path / "state.refused").read_bytes() == content

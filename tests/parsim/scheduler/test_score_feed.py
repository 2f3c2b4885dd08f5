"""A scorer that fails, blocks or answers nonsense never reaches the scheduler as an error."""

from __future__ import annotations

import logging
import time
import types
from collections.abc import Mapping
from typing import Any

import pytest

from parsim.scheduler import scoring
from parsim.scheduler.features import Features
from parsim.scheduler.scoring import FAILURES_IN_A_ROW, ScoreFeed, finite, load_scorer

LOG = logging.getLogger("test.scoring")
ASKED = Features(prompt_token_ids=[1], prompt_tokens=1)


class Stub:
    """A scorer whose answers and failures the test sets."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.ready: dict[str, Any] = {}
        self.error: Exception | None = None
        self.sleep_s = 0.0

    def submit(self, request_id: str, features: Features) -> None:
        self.asked.append(request_id)
        time.sleep(self.sleep_s)
        if self.error:
            raise self.error

    def poll(self) -> Mapping[str, float]:
        if self.error:
            raise self.error
        ready, self.ready = self.ready, {}
        return ready

    def finished(self, request_id: str, output_tokens: int, stopped: bool | None) -> None:
        if self.error:
            raise self.error

    def close(self) -> None:
        if self.error:
            raise self.error


def stub_factory(model: str) -> Stub:
    assert model == "the-model"
    return Stub()


def test_failures_are_counted_logged_once_and_end_in_giving_up(caplog: pytest.LogCaptureFixture) -> None:
    stub = Stub()
    feed = ScoreFeed(stub, LOG)
    stub.error = RuntimeError("no weights")
    for number in range(FAILURES_IN_A_ROW - 1):
        feed.submit(f"r{number}", ASKED)
    assert not feed.given_up
    assert feed.poll() == {}
    assert feed.given_up and feed.failures == FAILURES_IN_A_ROW
    feed.submit("later", ASKED)
    assert "later" not in stub.asked
    feed.close()
    messages = [record.getMessage() for record in caplog.records]
    assert sum("no weights" in message for message in messages) == 1
    assert sum("given up" in message for message in messages) == 1


def test_a_success_between_failures_keeps_the_scorer() -> None:
    stub = Stub()
    feed = ScoreFeed(stub, LOG)
    for number in range(3 * FAILURES_IN_A_ROW):
        stub.error = RuntimeError("now and then") if number % 2 else None
        feed.submit(f"r{number}", ASKED)
    assert not feed.given_up
    assert feed.failures == 3 * FAILURES_IN_A_ROW // 2


def test_a_scorer_that_blocks_the_scheduler_counts_as_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "BLOCKING_LIMIT_S", 0.001)
    stub = Stub()
    stub.sleep_s = 0.01
    feed = ScoreFeed(stub, LOG)
    for number in range(FAILURES_IN_A_ROW):
        feed.submit(f"r{number}", ASKED)
    assert feed.given_up


def test_answers_that_are_no_finite_number_are_dropped() -> None:
    stub = Stub()
    feed = ScoreFeed(stub, LOG)
    stub.ready = {"a": 1.5, "b": float("nan"), "c": "long", "d": "2"}
    assert feed.poll() == {"a": 1.5, "d": 2.0}
    assert feed.failures == 2


def test_batches_that_fail_on_the_scorers_own_thread_are_counted() -> None:
    stub = Stub()
    stub.stats = types.SimpleNamespace(failures=0)  # type: ignore[attr-defined]
    feed = ScoreFeed(stub, LOG)
    assert feed.poll() == {} and feed.failures == 0
    stub.stats.failures = 2  # type: ignore[attr-defined]
    feed.poll()
    feed.poll()
    assert feed.failures == 2


def test_failures_between_polls_that_find_nothing_end_in_giving_up() -> None:
    """The scheduler polls every step, mostly for nothing: that is no success."""
    stub = Stub()
    feed = ScoreFeed(stub, LOG)
    for number in range(FAILURES_IN_A_ROW):
        assert not feed.given_up
        stub.error = RuntimeError("no weights")
        feed.submit(f"r{number}", ASKED)
        stub.error = None
        feed.poll()
    assert feed.given_up


@pytest.mark.parametrize(("answers", "given_up"), [(False, True), (True, False)])
def test_a_scorer_whose_batches_all_fail_is_given_up(answers: bool, given_up: bool) -> None:
    """Each request is taken, each batch fails out of sight; a score between shows that it works for others."""
    stub = Stub()
    stub.stats = types.SimpleNamespace(failures=0)  # type: ignore[attr-defined]
    feed = ScoreFeed(stub, LOG)
    for number in range(2 * FAILURES_IN_A_ROW):
        feed.submit(f"r{number}", ASKED)
        stub.stats.failures += 1  # type: ignore[attr-defined]
        stub.ready = {"other": 1.0} if answers else {}
        feed.poll()
    assert feed.given_up is given_up


@pytest.mark.parametrize("answer", [None, 3, [1.0, 2.0], "scores"])
def test_an_answer_that_is_no_mapping_is_a_failure(answer: Any) -> None:
    stub = Stub()
    stub.poll = lambda: answer  # type: ignore[method-assign]
    feed = ScoreFeed(stub, LOG)
    assert feed.poll() == {}
    assert feed.failures == 1


def test_statistics_that_are_no_count_are_not_looked_at() -> None:
    stub = Stub()
    stub.stats = types.SimpleNamespace(failures="many")  # type: ignore[attr-defined]
    stub.ready = {"a": 1}
    assert ScoreFeed(stub, LOG).poll() == {"a": 1.0}


class NoScalar:
    """As a tensor of two numbers."""

    def __float__(self) -> float:
        raise RuntimeError("cannot be converted to a scalar")


@pytest.mark.parametrize("raw", [10**400, -(10**400), NoScalar(), {}, b"x"])
def test_what_no_float_can_hold_is_no_number(raw: Any) -> None:
    assert finite(raw) is None


def test_finite() -> None:
    assert [finite(raw) for raw in (3, "4.5", None, "x", float("inf"), [1])] == [
        3.0,
        4.5,
        None,
        None,
        None,
        None,
    ]


def test_load_scorer_calls_the_factory_with_the_model() -> None:
    assert isinstance(load_scorer(f"{__name__}:stub_factory", "the-model"), Stub)


@pytest.mark.parametrize("path", ["nowhere.at.all:x", f"{__name__}:missing", "no_colon", ""])
def test_load_scorer_names_a_path_that_leads_nowhere(path: str) -> None:
    with pytest.raises(ValueError, match=r"is not 'package\.module:name'"):
        load_scorer(path, "the-model")


def test_load_scorer_names_missing_methods() -> None:
    with pytest.raises(ValueError, match="has no submit, poll, finished, close"):
        load_scorer("builtins:str", "the-model")


@pytest.mark.parametrize("path", ["builtins:__debug__", "math:sqrt", "builtins:int", "builtins:open"])
def test_load_scorer_says_which_scorer_cannot_be_made(path: str) -> None:
    with pytest.raises(ValueError, match=f"scorer '{path}' cannot be made"):
        load_scorer(path, "the-model")

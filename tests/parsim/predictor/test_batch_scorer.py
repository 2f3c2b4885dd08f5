from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Sequence

import pytest

from parsim.predictor.scoring.scorer import BatchScorer
from parsim.scheduler.features import Features


def asked(prompt: str | Sequence[int]) -> Features:
    return Features(text=prompt) if isinstance(prompt, str) else Features(prompt_token_ids=prompt)


def until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.002)


def collect(scorer: BatchScorer, count: int) -> dict[str, float]:
    found: dict[str, float] = {}

    def enough() -> bool:
        found.update(scorer.poll())
        return len(found) >= count

    until(enough)
    return found


class Counting:
    """Scores a text by its length; can be held back."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, texts: Sequence[str]) -> list[float]:
        self.batches.append(list(texts))
        self.go.wait(5)
        return [float(len(text)) for text in texts]


def test_what_arrives_during_a_batch_forms_the_next_one() -> None:
    score = Counting()
    score.go.clear()
    scorer = BatchScorer(score)
    scorer.submit("first", asked("x"))
    until(lambda: len(score.batches) == 1)
    for number in range(5):
        scorer.submit(str(number), asked("y" * (number + 2)))
    assert scorer.poll() == {}
    score.go.set()
    found = collect(scorer, 6)
    assert found == {"first": 1.0, **{str(number): number + 2.0 for number in range(5)}}
    assert [len(batch) for batch in score.batches] == [1, 5]
    assert score.batches[1][0] == "yyyyyy"  # the newest first
    assert scorer.poll() == {}
    scorer.close()


def test_a_prompt_is_scored_once() -> None:
    score = Counting()
    scorer = BatchScorer(score)
    scorer.submit("a", asked("same"))
    collect(scorer, 1)
    scorer.submit("b", asked("same"))
    assert scorer.poll() == {"b": 4.0}
    assert (scorer.stats.cached, scorer.stats.batches) == (1, 1)
    scorer.close()


def test_batches_are_bounded_and_the_cache_forgets() -> None:
    score = Counting()
    score.go.clear()
    scorer = BatchScorer(score, max_batch=4, cache_size=2)
    for number in range(9):
        scorer.submit(str(number), asked("z" * (number + 1)))
    score.go.set()
    collect(scorer, 9)
    assert max(len(batch) for batch in score.batches) <= 4
    scorer.submit("again", asked("z" * 9))  # the newest was scored first
    collect(scorer, 1)
    assert scorer.stats.cached == 0
    scorer.close()


def test_a_request_that_waited_too_long_is_given_up() -> None:
    score = Counting()
    score.go.clear()
    scorer = BatchScorer(score, max_wait_s=0.05)
    scorer.submit("now", asked("x"))
    until(lambda: len(score.batches) == 1)
    scorer.submit("late", asked("yy"))
    time.sleep(0.1)
    score.go.set()
    until(lambda: scorer.stats.expired == 1)
    assert collect(scorer, 1) == {"now": 1.0}
    scorer.close()


def test_a_predictor_that_never_answers_does_not_fill_the_memory() -> None:
    score = Counting()
    score.go.clear()
    scorer = BatchScorer(score, max_wait_s=0.05)
    scorer.submit("hangs", asked("x"))
    until(lambda: len(score.batches) == 1)
    for number in range(100):
        scorer.submit(f"early {number}", asked("y" * number))
    time.sleep(0.1)
    scorer.submit("late", asked("z"))
    assert scorer.stats.expired == 100
    score.go.set()
    assert set(collect(scorer, 2)) == {"hangs", "late"}
    scorer.close()


def test_the_cache_holds_no_prompts_and_tells_text_from_ids() -> None:
    scorer = BatchScorer(Counting(), lambda ids: "decoded")
    ids = list(range(10_000))
    scorer.submit("ids", asked(ids))
    collect(scorer, 1)
    scorer.submit("again", asked(ids))
    assert scorer.poll() == {"again": 7.0}
    scorer.submit("others", asked([*ids, 1]))
    scorer.submit("text", asked(array("q", ids).tobytes().decode("latin-1")))
    collect(scorer, 2)
    assert scorer.stats.cached == 1
    assert sum(map(len, scorer._cache)) == 3 * 16
    scorer.close()


def test_a_failing_predictor_is_logged_once_and_leaves_the_worker_alive(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def score(texts: Sequence[str]) -> list[float]:
        if "bad" in texts:
            raise RuntimeError("broken")
        return [1.0 for _ in texts]

    scorer = BatchScorer(score)
    scorer.submit("a", asked("bad"))
    until(lambda: scorer.stats.failures == 1)
    scorer.submit("c", asked("bad"))
    until(lambda: scorer.stats.failures == 2)
    scorer.submit("b", asked("good"))
    assert collect(scorer, 1) == {"b": 1.0}
    scorer.close()
    assert [record.getMessage().count("broken") for record in caplog.records] == [1]


def test_token_ids_are_decoded_off_the_calling_thread() -> None:
    threads: list[str] = []

    def decode(ids: Sequence[int]) -> str:
        threads.append(threading.current_thread().name)
        return "".join(map(chr, ids))

    score = Counting()
    scorer = BatchScorer(score, decode)
    scorer.submit("a", asked([104, 105]))
    assert collect(scorer, 1) == {"a": 2.0}
    assert score.batches == [["hi"]]
    assert threads == ["parsim-scorer"]
    scorer.close()


def test_token_ids_that_cannot_be_decoded_cost_no_other_request_its_score(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def decode(ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    score = Counting()
    score.go.clear()
    scorer = BatchScorer(score, decode)
    scorer.submit("first", asked("x"))
    until(lambda: len(score.batches) == 1)
    for number in range(9):
        scorer.submit(str(number), asked([97] * (number + 1)))
    scorer.submit("negative", asked([-1]))
    scorer.submit("the same again", asked([-1]))
    scorer.submit("beyond any vocabulary", asked([2**70]))
    scorer.submit("none at all", asked([None]))  # type: ignore[list-item]
    score.go.set()
    assert collect(scorer, 10) == {"first": 1.0, **{str(number): number + 1.0 for number in range(9)}}
    scorer.submit("alone", asked([-2]))
    until(lambda: scorer.stats.undecodable == 5)
    scorer.submit("after", asked("yy"))
    assert collect(scorer, 1) == {"after": 2.0}
    scorer.close()
    assert (scorer.stats.submitted, scorer.stats.scored) == (16, 11)
    assert (scorer.stats.failures, scorer.stats.batches) == (0, 3)
    assert [record.getMessage().count("cannot be decoded") for record in caplog.records] == [1]


def test_submit_returns_at_once_and_close_drops_what_waits() -> None:
    score = Counting()
    score.go.clear()
    scorer = BatchScorer(score)
    started = time.perf_counter()
    for number in range(1000):
        scorer.submit(str(number), asked(str(number)))
    assert time.perf_counter() - started < 0.5
    until(lambda: len(score.batches) == 1)
    threading.Timer(0.05, score.go.set).start()
    scorer.close()
    assert len(score.batches) == 1
    scorer.submit("after", asked("x"))
    assert "after" not in scorer.poll()


@pytest.mark.parametrize("count", [64])
def test_submitting_from_many_threads_loses_nothing(count: int) -> None:
    scorer = BatchScorer(Counting())
    threads = [
        threading.Thread(
            target=lambda part=part: [
                scorer.submit(f"{part}-{n}", asked(f"{part} {n}")) for n in range(count)
            ]
        )
        for part in range(4)
    ]
    for thread in threads:
        thread.start()
    assert len(collect(scorer, 4 * count)) == 4 * count
    scorer.close()

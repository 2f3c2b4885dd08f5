"""The ranked queue against a list that is sorted afresh for every question."""

from __future__ import annotations

from math import inf
from statistics import median_low

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from parsim.scheduler.policy import Policy
from parsim.scheduler.queue import SCORE_WAIT_S, RankedQueue
from parsim.scheduler.request import WaitingRequest

THRESHOLD_S = 3.0


class Switch:
    """A judge that believes every score, and is switched by hand."""

    def __init__(self) -> None:
        self.trusted = True
        self.admissions: list[WaitingRequest] = []

    def heard(self, request: WaitingRequest) -> float | None:
        return request.score

    def admitted(self, request: WaitingRequest) -> None:
        self.admissions.append(request)

    def finished(self, request: WaitingRequest, output_tokens: int, stopped: bool | None) -> None:
        """Nothing to learn."""

    def reassess(self) -> None:
        """Nothing to find out."""


class QueueAgainstSortedList(RuleBasedStateMachine):
    """Random arrivals, pops, returns, aborts, late scores and steps; the order must always agree."""

    def __init__(self) -> None:
        super().__init__()
        self.judge = Switch()
        self.queue: RankedQueue[WaitingRequest] = RankedQueue(
            Policy("p", "score", None, THRESHOLD_S), judge=self.judge
        )
        self.trusted = True
        self.now_s = 0.0
        self.waiting: list[WaitingRequest] = []
        self.out: list[WaitingRequest] = []
        self.scores: list[float] = []

    def expected(self) -> list[WaitingRequest]:
        if not self.trusted:
            return sorted(self.waiting, key=lambda r: r.seq)
        promoted = sorted((r for r in self.waiting if r.promoted), key=lambda r: r.seq)
        ranked = [r for r in self.waiting if not r.promoted]
        return promoted + sorted(ranked, key=lambda r: (r.rank, r.arrival_s, r.request_id))

    def middle(self) -> float:
        return median_low(self.scores[-255:]) if self.scores else 0.0

    @rule(score=st.one_of(st.none(), st.integers(0, 4)), awaits=st.booleans())
    def arrive(self, score: int | None, awaits: bool) -> None:
        number = len(self.waiting) + len(self.out)
        request = WaitingRequest(f"r{number:03}", self.now_s, None if score is None else float(score))
        request.awaits_score = score is None and awaits
        self.queue.add(request)
        if score is None:
            assert request.rank == (inf if awaits else self.middle())
        else:
            self.scores.append(score)
            assert request.rank == score
        self.waiting.append(request)

    @precondition(lambda self: self.waiting)
    @rule()
    def pop(self) -> None:
        first = self.expected()[0]
        assert self.queue.peek() is first
        assert self.queue.pop() is first
        assert self.judge.admissions[-1] is first
        self.waiting.remove(first)
        self.out.append(first)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.out))
        self.out.remove(request)
        self.queue.add(request)
        self.waiting.append(request)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.waiting))
        self.queue.remove(request)
        self.waiting.remove(request)
        self.out.append(request)

    @precondition(lambda self: any(r.score is None for r in self.waiting + self.out))
    @rule(data=st.data(), score=st.integers(0, 4))
    def score_late(self, data: st.DataObject, score: int) -> None:
        unscored = [r for r in self.waiting + self.out if r.score is None]
        request = data.draw(st.sampled_from(unscored))
        self.queue.rescore(request, float(score))
        self.scores.append(score)
        assert request.rank == score

    @rule()
    def turn(self) -> None:
        """The judge changes its mind: nothing moves before the next step."""
        self.judge.trusted = not self.judge.trusted

    @rule(passed_s=st.sampled_from([0.0, 0.5, 1.0]))
    def step(self, passed_s: float) -> None:
        self.now_s += passed_s
        awaiting = [r for r in self.waiting + self.out if r.awaits_score]
        assert self.queue.next_due_s() <= min((r.arrival_s + SCORE_WAIT_S for r in awaiting), default=inf)
        self.queue.begin_step(self.now_s)
        self.trusted = self.judge.trusted
        for request in self.waiting:
            assert request.promoted or self.now_s - request.arrival_s <= THRESHOLD_S
        for request in awaiting:
            over = self.now_s - request.arrival_s > SCORE_WAIT_S
            assert request.awaits_score != over
            assert request.rank == (self.middle() if over else inf)

    @invariant()
    def same_order(self) -> None:
        assert list(self.queue) == self.expected()
        assert len(self.queue) == len(self.waiting)
        assert bool(self.queue) == bool(self.waiting)
        if self.waiting:
            assert self.queue.peek() is self.expected()[0]
            if not self.trusted:
                assert max(self.waiting, key=self.queue.key) is self.expected()[-1]


TestQueueAgainstSortedList = QueueAgainstSortedList.TestCase
TestQueueAgainstSortedList.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_entries_of_aborted_requests_do_not_pile_up() -> None:
    """Under a backlog that never drains, long requests that were aborted would otherwise stay for ever."""
    queue: RankedQueue[WaitingRequest] = RankedQueue(Policy("p", "score", None, None))
    for number in range(10_000):
        request = WaitingRequest(f"r{number}", float(number), 1e9)
        queue.add(request)
        queue.remove(request)
    assert len(queue) == 0
    assert len(queue._heap) <= 65


def test_one_absurd_score_does_not_move_where_the_unscored_rank() -> None:
    queue: RankedQueue[WaitingRequest] = RankedQueue(Policy("p", "score", None, None))
    for number, score in enumerate([50.0, 1e300, 70.0, -1e300, 60.0]):
        queue.add(WaitingRequest(f"r{number}", 0.0, score))
    unscored = WaitingRequest("unscored", 0.0)
    queue.add(unscored)
    assert unscored.rank == 60.0


def test_what_was_scored_long_ago_does_not_move_it_either() -> None:
    queue: RankedQueue[WaitingRequest] = RankedQueue(Policy("p", "score", None, None))
    for number in range(1000):
        queue.add(WaitingRequest(f"r{number}", 0.0, 9.0 if number < 745 else 3.0))
    unscored = WaitingRequest("unscored", 0.0)
    queue.add(unscored)
    assert unscored.rank == 3.0

"""The ranked queue of waiting requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from math import inf
from statistics import median_low
from typing import Any, Generic, TypeVar

from parsim.scheduler.expected import ExpectedLength
from parsim.scheduler.guard import DueGuard, Guard, StarvationGuard
from parsim.scheduler.judge import Judge
from parsim.scheduler.order import ORDERS, Key, Order, turn_key
from parsim.scheduler.own_order import forgiving
from parsim.scheduler.policy import Policy
from parsim.scheduler.request import WaitingRequest

R = TypeVar("R", bound=WaitingRequest)

SCORE_WAIT_S = 2.0
"""For so long after its arrival a request that awaits its score stands behind those that have one."""

KNOWN_SCORES = 255
"""A request without a score ranks at the median of so many of the last ones: no single score moves that."""


class RankedQueue(Generic[R]):
    """Waiting requests in the order of a policy, with its starvation guard.

    Two lanes. The first-come-first-served lane, ordered by first enqueueing, holds everything under `fcfs` and the
    promoted requests under a ranked order; it is always served first. The ranked lane is a heap. Adding, removing,
    promoting, re-scoring and popping cost O(log waiting); only `hrrn` sorts anew each step, and ageing whenever lengths
    are learned anew.

    A request without a score ranks at the median of the last scores (0 before the first): neither first nor last, and
    under the guard like any other. One that awaits its score ranks last until the score comes or `SCORE_WAIT_S` are
    over: under overload those that wait are mostly long, and in the middle every newcomer would pass them unseen.

    An entry is live while its ticket is its request's. Dead ones stay until they surface or outnumber the live ones.

    Args:
        policy: order, guard and victim.
        forgive: told of each failure of a user's order on a request, which then goes last; None: failures are raised.
        judge: says whether scores may order requests; while it does not trust them all are served in turn.
        ids_break_ties: of like running requests the greatest id is preempted, so that one goes on. vLLM's own
            `priority` rule takes the one admitted first: short of memory they can then preempt each other without end.
    """

    def __init__(
        self,
        policy: Policy,
        forgive: Callable[[Exception], None] | None = None,
        judge: Judge | None = None,
        ids_break_ties: bool = True,
    ) -> None:
        self.policy = policy
        self._key_parts = None if ids_break_ties else 2
        order = policy.aged_order
        by_ratio = policy.ranked and policy.starvation_s_per_token is not None
        self._lengths = ExpectedLength(policy.scores_are_tokens) if order.by_length or by_ratio else None
        self._rekeys = order.by_length
        self.guard: Guard | None = None
        if by_ratio:
            self.guard = DueGuard(self._limit_s)
        elif policy.ranked and policy.starvation_threshold_s is not None:
            self.guard = StarvationGuard(policy.starvation_threshold_s)
        # A guard by ratio promotes out of turn: the promoted stand in the heap then, ahead of every key.
        self._head: Any = None if not by_ratio else -inf if order.name in ORDERS else (-inf,)
        self._score_wait = StarvationGuard(SCORE_WAIT_S)
        self.now_s = 0.0
        self._in_turn = order.in_turn
        self._by_score = order is ORDERS["score"]
        self._key = self._key_of(order, forgive)
        self._time_varying = order.varies
        self._lane: deque[tuple[int, int, R]] = deque()  # seq, ticket, request
        self._heap: list[tuple[Any, float, str, int, R]] = []  # key, ticket, request
        self._stale_keys = False
        self._size = 0
        self._dead = 0
        self._next_seq = 0
        self._next_ticket = 0
        self._scores: deque[float] = deque(maxlen=KNOWN_SCORES)
        self.judge = judge
        self._distrusts = False

    def begin_step(self, now_s: float) -> None:
        """Re-evaluate the guard and time-varying keys; call once at the start of every scheduling step."""
        self.now_s = now_s
        self._stale_keys = self._time_varying
        if self._lengths is not None and self._lengths.refit():
            self._stale_keys = self._stale_keys or self._rekeys
            if isinstance(self.guard, DueGuard):
                self.guard.rearrange()
        if self.judge is not None:
            self.judge.reassess()
            if self.judge.trusted == self._distrusts:
                self._distrusts = not self.judge.trusted
                self._line_up()
        if self.guard is not None and self.guard.any_overdue(now_s):
            for request in self.guard.overdue(now_s):
                if request.waiting and not request.promoted:
                    request.promoted = True
                    self._bury(request)  # type: ignore[arg-type]
                    self._enter(request)  # type: ignore[arg-type]
        if self._score_wait.any_overdue(now_s):
            for request in self._score_wait.overdue(now_s):
                if request.awaits_score:
                    request.awaits_score = False
                    self._move(request)  # type: ignore[arg-type]

    def next_due_s(self) -> float:
        """A time before which no request is promoted or ends its wait for a score; infinity if none can."""
        due_s = self._score_wait.next_due_s()
        return due_s if self.guard is None else min(due_s, self.guard.next_due_s())

    def add(self, request: R) -> None:
        """Enqueue a new request, or return a preempted one."""
        if request.seq < 0:
            request.seq = self._next_seq
            self._next_seq += 1
            if not self._in_turn:
                self._rank(request)
                if request.awaits_score:
                    self._score_wait.watch(request)
                if self.guard is not None:
                    self.guard.watch(request)
        request.waiting = True
        self._size += 1
        if not request.promoted and self.guard is not None and self.guard.is_overdue(request, self.now_s):
            request.promoted = True
        self._enter(request)

    def rescore(self, request: R, score: float) -> None:
        """Give a score to a request that was enqueued without one (a predictor that answers late).

        If it waits in the ranked lane it moves to its place; elsewhere only its later rank changes.
        """
        request.score = score
        request.awaits_score = False
        if not self._in_turn:
            self._move(request)

    def peek(self) -> R:
        """The request to be served next; IndexError if the queue is empty."""
        lane = self._lane
        while lane:
            _, ticket, request = lane[0]
            if ticket == request.ticket:
                return request
            lane.popleft()
            self._dead -= 1
        if self._stale_keys:
            self._resort()
        heap = self._heap
        while True:
            entry = heap[0]
            if entry[3] == entry[4].ticket:
                return entry[4]
            heappop(heap)
            self._dead -= 1

    def pop(self) -> R:
        """Remove and return the request to be served next; IndexError if the queue is empty."""
        request = self.peek()
        if self._lane:
            self._lane.popleft()
        else:
            heappop(self._heap)
        request.waiting = False
        request.ticket = -1
        self._size -= 1
        if self.judge is not None:
            self.judge.admitted(request)
        return request

    def remove(self, request: R) -> None:
        """Withdraw a waiting request (an abort); a request that is not waiting is left alone."""
        if request.waiting:
            request.waiting = False
            self._size -= 1
            self._bury(request)

    def finished(self, request: R, output_tokens: int, stopped: bool | None) -> None:
        """Say how a request ended: `stopped` by itself, False: cut, None: aborted or failed."""
        if self.judge is not None:
            self.judge.finished(request, output_tokens, stopped)
        if self._lengths is not None and stopped is not None and request.score is not None:
            self._lengths.observe(request.rank, output_tokens)

    def key(self, request: R) -> tuple[Any, ...]:
        """Where a request stands in this order, waiting or running, promoted first; strict where ids break ties."""
        if self._distrusts:
            return (True, *turn_key(request, self.now_s)[: self._key_parts])
        return (not request.promoted, *self._key(request, self.now_s)[: self._key_parts])

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[R]:
        """Waiting requests, next to be served first. O(n log n)."""
        if self._stale_keys:
            self._resort()
        yield from (request for _, ticket, request in self._lane if ticket == request.ticket)
        yield from (entry[4] for entry in sorted(self._heap) if entry[3] == entry[4].ticket)

    def _enter(self, request: R) -> None:
        """Put a live entry into the lane where the request belongs; an earlier one of it dies."""
        ticket = request.ticket = self._next_ticket
        self._next_ticket += 1
        if self._in_turn or self._distrusts or (request.promoted and self._head is None):
            lane, seq = self._lane, request.seq
            if not lane or seq > lane[-1][0]:
                lane.append((seq, ticket, request))
                return
            place = 0
            while lane[place][0] < seq:
                place += 1
            lane.insert(place, (seq, ticket, request))
        elif self._by_score and not request.promoted:
            heappush(self._heap, (request.rank, request.arrival_s, request.request_id, ticket, request))
        else:
            heappush(self._heap, self._entry(request, ticket))

    def _entry(self, request: R, ticket: int) -> tuple[Any, float, str, int, R]:
        """Its entry in the heap."""
        if request.promoted:
            return (self._head, request.seq, request.request_id, ticket, request)
        return (*self._key(request, self.now_s), ticket, request)

    def _move(self, request: R) -> None:
        """Rank a request anew and put it where it belongs, if it waits in the ranked lane."""
        self._rank(request)
        if isinstance(self.guard, DueGuard):
            self.guard.watch(request)
        if request.waiting and not request.promoted and not self._distrusts:
            self._bury(request)
            self._enter(request)

    def _rank(self, request: R) -> None:
        score = request.score
        if score is not None and self.judge is not None:
            score = self.judge.heard(request)
        if score is not None:
            request.rank = score
            self._scores.append(score)
        elif request.awaits_score:
            request.rank = inf
        else:
            request.rank = median_low(self._scores) if self._scores else 0.0

    def _limit_s(self, request: WaitingRequest) -> float:
        """Seconds that a request may wait before it is promoted."""
        policy = self.policy
        limit_s = inf if policy.starvation_threshold_s is None else policy.starvation_threshold_s
        tokens = self._lengths.of(request.rank) if self._lengths is not None else None
        if tokens is not None and policy.starvation_s_per_token is not None:
            limit_s = min(limit_s, policy.starvation_s_per_token * tokens)
        return limit_s

    def _key_of(
        self, order: Order, forgive: Callable[[Exception], None] | None
    ) -> Callable[[WaitingRequest, float], Key]:
        lengths = self._lengths
        if order.by_length and lengths is not None:
            return lambda request, now_s: order.key(request, now_s, lengths.of(request.rank) or 1.0)
        if forgive is None or order.name in ORDERS:
            return order.key
        return forgiving(order.key, forgive)

    def _line_up(self) -> None:
        """Put everybody where he belongs now that scores have come into use or gone out of it."""
        waiting = sorted(self, key=lambda request: request.seq)
        self._lane.clear()
        self._heap.clear()
        self._dead = 0
        for request in waiting:
            self._enter(request)

    def _resort(self) -> None:
        live = [(entry[3], entry[4]) for entry in self._heap if entry[3] == entry[4].ticket]
        self._dead -= len(self._heap) - len(live)
        self._heap = [self._entry(request, ticket) for ticket, request in live]
        heapify(self._heap)
        self._stale_keys = False

    def _bury(self, request: R) -> None:
        """Declare the request's entry dead; drop all dead ones once they outnumber the live."""
        request.ticket = -1
        self._dead += 1
        if self._dead > self._size + 64:
            self._lane = deque(entry for entry in self._lane if entry[1] == entry[2].ticket)
            self._heap = [entry for entry in self._heap if entry[3] == entry[4].ticket]
            heapify(self._heap)
            self._dead = 0

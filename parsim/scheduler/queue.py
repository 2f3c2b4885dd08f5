"""The ranked queue of waiting requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from parsim.scheduler.guard import StarvationGuard
from parsim.scheduler.order import KEYS, TIME_VARYING
from parsim.scheduler.policy import Policy
from parsim.scheduler.request import WaitingRequest

R = TypeVar("R", bound=WaitingRequest)


class RankedQueue(Generic[R]):
    """Waiting requests in the order of a policy, with its starvation guard.

    Two lanes. The first-come-first-served lane, ordered by first enqueueing, holds everything under `fcfs` and
    the promoted requests under a ranked order; it is always served first. The ranked lane is a heap. Adding,
    removing and popping cost O(log waiting); only `hrrn` re-sorts, once a step.

    A request without a score ranks at the mean of the scores seen so far (0 before the first): neither first
    nor last, and under the guard like any other.

    Entries of removed and promoted requests stay in their lane until they surface, and are dropped then.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.guard = (
            StarvationGuard(policy.starvation_threshold_s)
            if policy.order != "fcfs" and policy.starvation_threshold_s is not None
            else None
        )
        self.now_s = 0.0
        self._fcfs = policy.order == "fcfs"
        self._by_score = policy.order == "score"
        self._time_varying = policy.order in TIME_VARYING
        self._lane: deque[R] = deque()
        self._heap: list[tuple[float, float, str, int, R]] = []
        self._stale_keys = False
        self._size = 0
        self._next_seq = 0
        self._score_sum = 0.0
        self._score_count = 0

    def begin_step(self, now_s: float) -> None:
        """Re-evaluate the guard and time-varying keys; call once at the start of every scheduling step."""
        self.now_s = now_s
        if self.guard is not None:
            for request in self.guard.overdue(now_s):
                if request.waiting and not request.promoted:
                    request.promoted = True
                    self._enter_lane(request)  # type: ignore[arg-type]
        self._stale_keys = self._time_varying

    def add(self, request: R) -> None:
        """Enqueue a new request, or return a preempted one."""
        if request.removed:
            self._purge()
            request.removed = False
        first_time = request.seq < 0
        if first_time:
            request.seq = self._next_seq
            self._next_seq += 1
        request.waiting = True
        self._size += 1
        if self._fcfs:
            self._enter_lane(request)
            return
        if first_time:
            self._rank(request)
            if self.guard is not None:
                self.guard.watch(request)
        if not request.promoted and self.guard is not None and self.guard.is_overdue(request, self.now_s):
            request.promoted = True
        if request.promoted:
            self._enter_lane(request)
        elif self._by_score:
            heappush(self._heap, (request.rank, request.arrival_s, request.request_id, request.seq, request))
        else:
            key = KEYS[self.policy.order](request, self.now_s)
            heappush(self._heap, (*key, request.seq, request))

    def peek(self) -> R:
        """The request to be served next.

        Raises:
            IndexError: the queue is empty.
        """
        lane = self._lane
        while lane and lane[0].removed:
            lane.popleft().removed = False
        if lane:
            return lane[0]
        if self._stale_keys:
            self._resort()
        heap = self._heap
        while heap and (heap[0][4].promoted or heap[0][4].removed):
            heappop(heap)[4].removed = False
        return heap[0][4]

    def pop(self) -> R:
        """Remove and return the request to be served next.

        Raises:
            IndexError: the queue is empty.
        """
        request = self.peek()
        if self._lane:
            self._lane.popleft()
        else:
            heappop(self._heap)
        request.waiting = False
        self._size -= 1
        return request

    def remove(self, request: R) -> None:
        """Withdraw a waiting request (an abort); a request that is not waiting is left alone."""
        if request.waiting:
            request.waiting = False
            request.removed = True
            self._size -= 1

    def key(self, request: R) -> tuple[bool, float, float, str]:
        """Where a request stands in this order, waiting or running; promoted ones first. A strict total order."""
        if self._fcfs:
            return (True, float(request.seq), request.arrival_s, request.request_id)
        return (not request.promoted, *KEYS[self.policy.order](request, self.now_s))

    def __len__(self) -> int:
        return self._size

    def __bool__(self) -> bool:
        return self._size > 0

    def __iter__(self) -> Iterator[R]:
        """Waiting requests, next to be served first. O(n log n)."""
        if self._stale_keys:
            self._resort()
        yield from (request for request in self._lane if not request.removed)
        yield from (
            entry[4] for entry in sorted(self._heap) if not entry[4].promoted and not entry[4].removed
        )

    def _enter_lane(self, request: R) -> None:
        lane, seq = self._lane, request.seq
        if not lane or seq > lane[-1].seq:
            lane.append(request)
            return
        place = 0
        while lane[place].seq < seq:
            place += 1
        lane.insert(place, request)

    def _rank(self, request: R) -> None:
        if request.score is not None:
            request.rank = request.score
            self._score_sum += request.score
            self._score_count += 1
        elif self._score_count:
            request.rank = self._score_sum / self._score_count

    def _resort(self) -> None:
        key, now_s = KEYS[self.policy.order], self.now_s
        live = [entry[4] for entry in self._heap if not entry[4].promoted and not entry[4].removed]
        self._heap = [(*key(request, now_s), request.seq, request) for request in live]
        heapify(self._heap)
        self._stale_keys = False

    def _purge(self) -> None:
        """Drop the entries of removed requests, so that one of them can come back."""
        self._lane = deque(request for request in self._lane if not request.removed)
        self._heap = [entry for entry in self._heap if not entry[4].removed and not entry[4].promoted]
        heapify(self._heap)

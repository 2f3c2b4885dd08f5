"""The guard against starvation: who has waited too long."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import Protocol

from parsim.scheduler.request import WaitingRequest


class Guard(Protocol):
    """Finds the requests that have waited too long; waiting counts from arrival, also after a preemption."""

    def watch(self, request: WaitingRequest) -> None:
        """Begin to watch a request on its first arrival."""

    def is_overdue(self, request: WaitingRequest, now_s: float) -> bool:
        """Whether the request has waited too long at `now_s`."""

    def overdue(self, now_s: float) -> Iterator[WaitingRequest]:
        """Yield each watched request that is overdue, once, in order of arrival or dueness. Some may be finished."""

    def any_overdue(self, now_s: float) -> bool:
        """Whether `overdue` may have anything to yield; costs nothing where it does not."""

    def next_due_s(self) -> float:
        """A time before which no watched request can become overdue; infinity if none is watched."""

    def forget(self, request: WaitingRequest) -> None:
        """Stop watching a request that is finished, for engines that outlive their requests. Amortised O(1)."""


class StarvationGuard:
    """Finds the requests that have waited longer than a threshold, in O(changes).

    A request is overdue when `now_s - arrival_s > threshold_s`: exactly at the threshold it is not.
    """

    def __init__(self, threshold_s: float) -> None:
        self.threshold_s = threshold_s
        self._by_arrival: deque[WaitingRequest] = deque()
        self._forgotten: set[WaitingRequest] = set()

    def watch(self, request: WaitingRequest) -> None:
        """Begin to watch a request on its first arrival; later than others or (rarely) out of order."""
        watched = self._by_arrival
        place = len(watched)
        while place and watched[place - 1].arrival_s > request.arrival_s:
            place -= 1
        if place == len(watched):
            watched.append(request)
        else:
            watched.insert(place, request)

    def is_overdue(self, request: WaitingRequest, now_s: float) -> bool:
        return now_s - request.arrival_s > self.threshold_s

    def overdue(self, now_s: float) -> Iterator[WaitingRequest]:
        watched = self._by_arrival
        while watched and now_s - watched[0].arrival_s > self.threshold_s:
            yield watched.popleft()

    def any_overdue(self, now_s: float) -> bool:
        """Whether `overdue` has anything to yield."""
        return bool(self._by_arrival) and now_s - self._by_arrival[0].arrival_s > self.threshold_s

    def next_due_s(self) -> float:
        return self._by_arrival[0].arrival_s + self.threshold_s if self._by_arrival else inf

    def forget(self, request: WaitingRequest) -> None:
        self._forgotten.add(request)
        if 2 * len(self._forgotten) > len(self._by_arrival):
            self._by_arrival = deque(
                watched for watched in self._by_arrival if watched not in self._forgotten
            )
            self._forgotten.clear()


class DueGuard:
    """Finds the requests that have waited longer than a limit of their own, in O(log watched) a change.

    One whose limit has changed alone is watched once more.

    Args:
        limit_s: seconds that a request may wait; infinity for any time. Where limits change, say so by `rearrange`.
    """

    def __init__(self, limit_s: Callable[[WaitingRequest], float]) -> None:
        self._limit_s = limit_s
        self._by_due: list[tuple[float, int, WaitingRequest]] = []  # due, place of first enqueueing
        self._forgotten: set[WaitingRequest] = set()

    def watch(self, request: WaitingRequest) -> None:
        heappush(self._by_due, (self._due_s(request), request.seq, request))

    def is_overdue(self, request: WaitingRequest, now_s: float) -> bool:
        return now_s > self._due_s(request)

    def any_overdue(self, now_s: float) -> bool:
        return bool(self._by_due) and now_s > self._by_due[0][0]

    def overdue(self, now_s: float) -> Iterator[WaitingRequest]:
        while self._by_due and now_s > self._by_due[0][0]:
            request = heappop(self._by_due)[2]
            if self.is_overdue(request, now_s):
                yield request
            else:  # it has been given a longer limit since
                self.watch(request)

    def next_due_s(self) -> float:
        return self._by_due[0][0] if self._by_due else inf

    def rearrange(self) -> None:
        """Limits have changed: order the watched anew. O(watched)."""
        self._by_due = [(self._due_s(request), seq, request) for _, seq, request in self._by_due]
        heapify(self._by_due)

    def forget(self, request: WaitingRequest) -> None:
        self._forgotten.add(request)
        if 2 * len(self._forgotten) > len(self._by_due):
            self._by_due = [entry for entry in self._by_due if entry[2] not in self._forgotten]
            heapify(self._by_due)
            self._forgotten.clear()

    def _due_s(self, request: WaitingRequest) -> float:
        return request.arrival_s + self._limit_s(request)

"""The guard against starvation: who has waited too long."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from parsim.scheduler.request import WaitingRequest


class StarvationGuard:
    """Finds the requests that have waited longer than a threshold, in O(changes).

    Waiting time counts from arrival, also after a preemption. A request is overdue when
    `now_s - arrival_s > threshold_s`: exactly at the threshold it is not.
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
        """Whether the request has waited longer than the threshold at `now_s`."""
        return now_s - request.arrival_s > self.threshold_s

    def overdue(self, now_s: float) -> Iterator[WaitingRequest]:
        """Yield, earliest arrival first, each watched request that is overdue; each once. Some may be finished."""
        watched = self._by_arrival
        while watched and now_s - watched[0].arrival_s > self.threshold_s:
            yield watched.popleft()

    def any_overdue(self, now_s: float) -> bool:
        """Whether `overdue` has anything to yield."""
        return bool(self._by_arrival) and now_s - self._by_arrival[0].arrival_s > self.threshold_s

    def next_due_s(self) -> float:
        """A time before which no watched request can become overdue; infinity if none is watched."""
        return self._by_arrival[0].arrival_s + self.threshold_s if self._by_arrival else float("inf")

    def forget(self, request: WaitingRequest) -> None:
        """Stop watching a request that is finished, for engines that outlive their requests. Amortised O(1)."""
        self._forgotten.add(request)
        if 2 * len(self._forgotten) > len(self._by_arrival):
            self._by_arrival = deque(
                watched for watched in self._by_arrival if watched not in self._forgotten
            )
            self._forgotten.clear()

"""The ranked queue behind vLLM's `RequestQueue` interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import Request

from parsim.scheduler.judge import Judge
from parsim.scheduler.policy import Policy
from parsim.scheduler.queue import RankedQueue
from parsim.scheduler.request import WaitingRequest


class Entry(WaitingRequest):
    """What `RankedQueue` orders, with vLLM's request attached until that is finished."""

    __slots__ = ("request",)

    def __init__(self, request: Request, score: float | None, awaits_score: bool, claimant: str) -> None:
        super().__init__(request.request_id, request.arrival_time, score, request.num_prompt_tokens)
        self.awaits_score = awaits_score
        self.claimant = claimant
        self.request: Request | None = request


class VictimRank:
    """Stands in for `Request.priority`: vLLM's `priority` rule preempts the request of the greatest one.

    Compared through `RankedQueue.key` at that moment, so that promotions and keys that change with time
    count.
    """

    __slots__ = ("entry", "ranked")

    def __init__(self, ranked: RankedQueue[Entry], entry: Entry) -> None:
        self.ranked = ranked
        self.entry = entry

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VictimRank) and self.entry is other.entry

    def __hash__(self) -> int:
        return id(self.entry)

    def __lt__(self, other: VictimRank) -> bool:
        return self.ranked.key(self.entry) < self.ranked.key(other.entry)

    def __gt__(self, other: VictimRank) -> bool:
        return other < self


class ParsQueue(RequestQueue):
    """vLLM's waiting queue in the order of a policy.

    A request keeps its entry (score, place of first enqueueing, promotion) from its first arrival until
    `forget`, through preemptions; so returning to the queue, which vLLM calls prepending, is the same as
    adding. `score_of` gives a new request's score, whether one may still come, and which client gave it.
    `forgive` is told of each failure of a user's order; that request goes last. `admitted` is told of each request that
    leaves the queue to be served.
    """

    def __init__(
        self,
        policy: Policy,
        score_of: Callable[[Request], tuple[float | None, bool, str]],
        forgive: Callable[[Exception], None],
        judge: Judge | None = None,
        admitted: Callable[[Request], None] | None = None,
    ) -> None:
        self.ranked: RankedQueue[Entry] = RankedQueue(policy, forgive, judge)
        self.entries: dict[str, Entry] = {}
        self._score_of = score_of
        self._admitted = admitted

    def add_request(self, request: Request) -> None:
        entry = self.entries.get(request.request_id)
        if entry is None:
            entry = self.entries[request.request_id] = Entry(request, *self._score_of(request))
            if self.ranked.policy.victim == "worst":
                request.priority = VictimRank(self.ranked, entry)
        self.ranked.add(entry)

    def pop_request(self) -> Request:
        request = _request(self.ranked.pop())
        if self._admitted is not None:
            self._admitted(request)
        return request

    def peek_request(self) -> Request:
        return _request(self.ranked.peek())

    def prepend_request(self, request: Request) -> None:
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.add_request(request)

    def remove_request(self, request: Request) -> None:
        entry = self.entries.get(request.request_id)
        if entry is not None:
            self.ranked.remove(entry)

    def remove_requests(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.remove_request(request)

    def forget(self, request_id: str) -> None:
        """Drop what is known about a request that is finished or aborted."""
        entry = self.entries.pop(request_id, None)
        if entry is not None:
            self.ranked.remove(entry)
            entry.request = None  # the guard may hold the entry a little longer
            if self.ranked.guard is not None:
                self.ranked.guard.forget(entry)

    def __bool__(self) -> bool:
        return bool(self.ranked)

    def __len__(self) -> int:
        return len(self.ranked)

    def __iter__(self) -> Iterator[Request]:
        return (_request(entry) for entry in self.ranked)


def _request(entry: Entry) -> Request:
    assert entry.request is not None, "a forgotten request cannot wait"
    return entry.request

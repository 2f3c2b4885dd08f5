"""vLLM's own balancer over data-parallel engines (`DPLBAsyncMPClient`).

Its views are snapshots that a coordinator publishes at most every 100 ms; between two of them the balancer counts what
it sent itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from parsim.router.router import Routed, View


class _Balancer:
    """Keeps what was sent since each engine's last snapshot. Of equal scores the first from a starting place on."""

    publish_s = 0.1

    def __init__(self, clients: int = 1, client: int = 0) -> None:
        self.clients = clients
        self._client = client
        self._start: int | None = None
        self._sent: list[int] = []
        self._seen_s: list[float] = []

    def choose(self, request: Routed, views: Sequence[View], now_s: float) -> int:
        """The engine of the least score."""
        count = len(views)
        if self._start is None or len(self._sent) != count:
            self._start = count * self._client // self.clients
            self._sent, self._seen_s = [0] * count, [view.as_of_s for view in views]
        for i, view in enumerate(views):
            if view.as_of_s != self._seen_s[i]:
                self._sent[i], self._seen_s[i] = 0, view.as_of_s
        start = self._start
        chosen = min(
            range(count),
            key=lambda i: (self._score(views[i], views[i].waiting + self._sent[i]), (i - start) % count),
        )
        self._sent[chosen] += self.clients
        self._start = self._next(start, count)
        return chosen

    def _score(self, view: View, waiting: int) -> float:
        raise NotImplementedError

    def _next(self, start: int, count: int) -> int:
        return start


class VllmDp(_Balancer):
    """vLLM 0.32: the greater of what is in flight (times the API servers) and waiting + running, plus up to three times
    the waiting as the KV cache fills beyond a half; the starting place moves on by one each time.

    Args:
        clients: API server processes, each of which sees only what it sent itself.
        client: the number of this one.
    """

    def _score(self, view: View, waiting: int) -> float:
        score: float = max(self.clients * view.in_flight, waiting + view.running)
        if waiting:
            score += waiting * 6.0 * max(0.0, view.kv_usage - 0.5)
        return score

    def _next(self, start: int, count: int) -> int:
        return (start + 1) % count


class VllmDpOld(_Balancer):
    """vLLM up to about 0.19: four times the waiting plus the running; the first engine wins ties."""

    def _score(self, view: View, waiting: int) -> float:
        return 4 * waiting + view.running

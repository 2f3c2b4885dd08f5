"""Whether what clients say of their own requests agrees with what these turn out to be."""

from __future__ import annotations

from collections import OrderedDict

from parsim.scheduler.recent import Recent

PROVEN = 20
"""A client's claims count without a ceiling once so many of its requests have finished."""
UNPROVEN = 32
"""Until then at most so many of its requests that have not finished are ordered by what it claims."""
OVER = 64
"""A client's record is a mean over about so many of its last requests."""
MOST_DRIFT = 0.2
"""Claims are set aside while responses come out this much longer, as a share of all requests, than was claimed."""
CLIENTS = 4096
"""Clients remembered; the one heard of least recently is forgotten first."""
LENGTHS = 255


class _Client:
    __slots__ = ("drift", "finished", "open")

    def __init__(self) -> None:
        self.finished = 0
        self.open = 0
        self.drift = 0.0


class Claims:
    """Compares where a client's scores stand among all scores with where its lengths stand among all lengths.

    A client whose requests are said to be among the shortest and are not overtakes everybody who tells the truth.
    Its record then drifts above `MOST_DRIFT`, its claims are set aside, and its requests rank in the middle like those
    without a score; what it goes on to claim is still compared, so that it can come back.
    """

    def __init__(self) -> None:
        self._clients: OrderedDict[str, _Client] = OrderedDict()
        self._lengths = Recent(LENGTHS)

    def __len__(self) -> int:
        return len(self._clients)

    def believed(self, name: str) -> bool:
        """Take in one more claim of this client; whether it may be used."""
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = _Client()
            if len(self._clients) > CLIENTS:
                self._clients.popitem(last=False)
        self._clients.move_to_end(name)
        client.open += 1
        if client.finished < PROVEN:
            return client.open <= UNPROVEN
        return client.drift <= MOST_DRIFT

    def finished(self, name: str, claimed: float, output_tokens: int | None) -> None:
        """A request whose score stood at `claimed`, a share of all, has left; None for one that was aborted."""
        if output_tokens is not None:
            place = self._lengths.place(output_tokens)
            self._lengths.add(output_tokens)
        client = self._clients.get(name)
        if client is None:
            return
        client.open = max(client.open - 1, 0)
        if output_tokens is not None:
            client.finished += 1
            client.drift += (place - claimed - client.drift) / min(client.finished, OVER)

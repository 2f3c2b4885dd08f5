"""What the scheduler knows about a request."""

from __future__ import annotations


class WaitingRequest:
    """A request as the scheduler sees it; engines subclass it or attach their own request to it.

    Attributes:
        request_id: unique name.
        arrival_s: arrival in seconds, on the clock that `RankedQueue.begin_step` is given.
        score: predicted response length on any scale, higher = longer; None when nothing scored it.
        prompt_tokens: length of the prompt.
        claimant: the client that gave the score; empty where a scorer did, or where it is not known.
        awaits_score: a scorer was asked and may still answer.
        rank: the number that orders it: the score, or what stands in for a missing one.
        seq: its place in the order of first enqueueing; -1 before that.
        waiting: it is in a queue now.
        promoted: the starvation guard moved it ahead; it stays so for life.
        ticket: number of its live entry in the queue, -1 while it has none; its other entries are dead.
    """

    __slots__ = (
        "arrival_s",
        "awaits_score",
        "claimant",
        "promoted",
        "prompt_tokens",
        "rank",
        "request_id",
        "score",
        "seq",
        "ticket",
        "waiting",
    )

    def __init__(
        self, request_id: str, arrival_s: float, score: float | None = None, prompt_tokens: int = 1
    ) -> None:
        self.request_id = request_id
        self.arrival_s = arrival_s
        self.score = score
        self.prompt_tokens = prompt_tokens
        self.claimant = ""
        self.awaits_score = False
        self.rank = 0.0
        self.seq = -1
        self.waiting = False
        self.promoted = False
        self.ticket = -1

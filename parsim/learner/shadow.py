"""Scorers that are asked and not obeyed: how each would rank what is served."""

from __future__ import annotations

from collections import OrderedDict

from parsim.learner.judge import ScoreJudge
from parsim.learner.kendall import Tau
from parsim.scheduler.features import Features
from parsim.scheduler.judge import Judge
from parsim.scheduler.request import WaitingRequest
from parsim.scheduler.scoring import ScoreFeed

MOST_OPEN = 65_536
"""Requests that are remembered from their arrival to their end; the oldest is forgotten first."""


class Shadow:
    """One scorer, its answers, and a judge that measures how they rank.

    Attributes:
        name: of the scorer.
        judge: whose `trusted` says whether the scores would be used.
    """

    def __init__(self, name: str, feed: ScoreFeed) -> None:
        self.name = name
        self.feed = feed
        self.judge = ScoreJudge(said_of=name)
        self._open: OrderedDict[str, WaitingRequest] = OrderedDict()

    @property
    def tau(self) -> Tau:
        """tau-b over the last finished requests, with its standard error."""
        return self.judge.tau

    def arrived(self, request_id: str, features: Features) -> None:
        """Ask about a request."""
        self.feed.submit(request_id, features)
        self._open[request_id] = WaitingRequest(request_id, 0.0)
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)

    def score(self, request_id: str) -> float | None:
        """What the scorer said of a request that has not finished."""
        request = self._open.get(request_id)
        return None if request is None else request.score

    def admitted(self, request_id: str) -> None:
        """The request is served from now on."""
        request = self._open.get(request_id)
        if request is not None:
            self.judge.admitted(request)

    def finished(self, request_id: str, output_tokens: int, stopped: bool | None) -> None:
        """The request has left."""
        self.feed.finished(request_id, output_tokens, stopped)
        request = self._open.pop(request_id, None)
        if request is not None:
            self.judge.finished(request, output_tokens, stopped)

    def poll(self) -> None:
        """Take in what the scorer has found, and measure anew."""
        for request_id, score in self.feed.poll().items():
            request = self._open.get(request_id)
            if request is not None and request.score is None:
                request.score = score
                heard = self.judge.heard(request)
                request.rank = score if heard is None else heard
        self.judge.reassess()


class Panel:
    """A judge beside whom shadows watch: what the queue tells its judge reaches them too."""

    def __init__(self, judge: Judge | None, shadows: list[Shadow]) -> None:
        self.judge = judge
        self.shadows = shadows

    @property
    def trusted(self) -> bool:
        """See `parsim.scheduler.judge.Judge`."""
        return self.judge is None or self.judge.trusted

    def heard(self, request: WaitingRequest) -> float | None:
        """The judge's word; without one every score counts."""
        return request.score if self.judge is None else self.judge.heard(request)

    def admitted(self, request: WaitingRequest) -> None:
        """Told to the judge and to the shadows."""
        if self.judge is not None:
            self.judge.admitted(request)
        for shadow in self.shadows:
            shadow.admitted(request.request_id)

    def finished(self, request: WaitingRequest, output_tokens: int, stopped: bool | None) -> None:
        """Told to the judge and to the shadows."""
        if self.judge is not None:
            self.judge.finished(request, output_tokens, stopped)
        for shadow in self.shadows:
            shadow.finished(request.request_id, output_tokens, stopped)

    def reassess(self) -> None:
        """The judge's; the shadows take in their scorers' answers."""
        if self.judge is not None:
            self.judge.reassess()
        for shadow in self.shadows:
            shadow.poll()

"""Do no harm: whether the scores in use rank better than no order at all."""

from __future__ import annotations

import logging
import math
from collections import deque

import numpy as np

from parsim.learner.claims import Claims
from parsim.learner.kendall import Tau, tau_b
from parsim.scheduler.recent import Recent
from parsim.scheduler.request import WaitingRequest

log = logging.getLogger("vllm.parsim")

WINDOW = 400
"""Finished requests, in the order in which they were admitted, that the long tau is over."""
SHORT = 128
"""The same for the short tau, which sees a turn of the scores first."""
EVERY = 32
"""Finished requests between two assessments."""
TRUST_AT = 3.0
DISTRUST_AT = 1.0
"""Scores come into use when tau lies more than `TRUST_AT` standard errors above 0, and go out of use when it lies less
than `DISTRUST_AT` above it."""
TURNED_AT = 2.0
"""They also go out of use when the short tau lies this many standard errors below 0."""

MOST_RUNNING = 4096
"""Admitted requests that have not finished are remembered up to this number."""

KNOWN_SCORES = 255
LEAST_SCORES = 20
PLAUSIBLE = 20.0
"""A score further from the median than this many times the range of the middle 80% is taken for the limit so drawn."""


class _Watched:
    """A request that was admitted with a score; `tokens` 0 while it runs."""

    __slots__ = ("gone", "score", "stopped", "tokens")

    def __init__(self, score: float) -> None:
        self.score = score
        self.tokens = 0
        self.stopped = False
        self.gone = False


class ScoreJudge:
    """Trusts scores while Kendall's tau-b of the requests that finished is above 0; at first it does not.

    Who finishes first is short: among requests in service, those that ended say nothing about those that go on.
    So requests are looked at in the order of their admission, and one that still runs counts as longer than every
    finished one that was admitted after it (`parsim.learner.kendall`). tau is measured on whatever order is in
    use, so scores that rank badly are watched while they are not used, and return when they rank well.

    Attributes:
        trusted: see `parsim.scheduler.judge.Judge`.
        tau: of the long window, with its standard error; NaN before there is any.
        trusted_times, distrusted_times: transitions.
        clipped: scores that were out of the plausible range.
        set_aside: scores of clients whose claims do not come true, or have not yet (`parsim.learner.claims`).
    """

    def __init__(self, said_of: str = "") -> None:
        """`said_of`: whose scores they are, where they are not the ones in use: for the log."""
        self._said_of = said_of
        self.trusted = False
        self.tau = Tau(math.nan, math.nan)
        self.trusted_times = 0
        self.distrusted_times = 0
        self.clipped = 0
        self.set_aside = 0
        self._claims = Claims()
        self._claimed: dict[str, float] = {}
        self._scores = Recent(KNOWN_SCORES)
        self._watched: deque[_Watched] = deque()
        self._running: dict[str, _Watched] = {}
        self._known = 0
        self._new = 0

    def facts(self) -> dict[str, float]:
        """What was found in a run, for its metadata."""
        return {
            "trusted_times": self.trusted_times,
            "distrusted_times": self.distrusted_times,
            "judged_tau": self.tau.value,
        }

    def heard(self, request: WaitingRequest) -> float | None:
        """The score, moved into the plausible range; None where its claimant is not believed."""
        score = request.score
        if score is None or not math.isfinite(score):
            return None
        scores = self._scores
        if request.claimant:
            self._claimed[request.request_id] = scores.place(score)
            if not self._claims.believed(request.claimant):
                self.set_aside += 1
                return None
        scores.add(score)
        if len(scores) < LEAST_SCORES:
            return score
        low, middle, high = (scores.quantile(share) for share in (0.1, 0.5, 0.9))
        room = PLAUSIBLE * (high - low)
        plausible = min(max(score, middle - room), middle + room)
        self.clipped += plausible != score
        return plausible

    def admitted(self, request: WaitingRequest) -> None:
        """Watch a scored request from its first admission on."""
        if request.score is None or request.request_id in self._running:
            return
        watched = self._running[request.request_id] = _Watched(request.rank)
        self._watched.append(watched)
        if len(self._running) > MOST_RUNNING:
            self._running.pop(next(iter(self._running))).gone = True

    def finished(self, request: WaitingRequest, output_tokens: int, stopped: bool | None) -> None:
        """Take down the length of a request that was admitted."""
        if request.claimant:
            claimed = self._claimed.pop(request.request_id, None)
            if claimed is not None:
                self._claims.finished(request.claimant, claimed, None if stopped is None else output_tokens)
        watched = self._running.pop(request.request_id, None)
        if watched is None:
            return
        self._new += 1
        if stopped is None:
            watched.gone = True
            return
        watched.tokens, watched.stopped = max(output_tokens, 1), stopped
        self._known += 1

    def reassess(self) -> None:
        """Form `trusted` anew once `EVERY` more have finished; logs a line where it changes."""
        if self._new < EVERY:
            return
        self._new = 0
        seen = deque(one for one in self._watched if not one.gone)
        while self._known > WINDOW:
            self._known -= seen.popleft().tokens > 0
        self._watched = seen
        scores = np.array([one.score for one in seen])
        tokens = np.array([one.tokens for one in seen], float)
        bounds = np.array([not one.stopped for one in seen])
        running = tokens == 0
        later = np.maximum.accumulate(tokens[::-1])[::-1]
        tokens[running] = later[
            running
        ]  # a running one has no tokens of its own: the longest admitted after it
        told = tokens > 0
        scores, tokens, bounds = scores[told], tokens[told], bounds[told]
        self.tau = tau_b(scores, tokens, bounds)
        short = tau_b(scores[-SHORT:], tokens[-SHORT:], bounds[-SHORT:])
        self._decide(self.tau, short)

    def _decide(self, tau: Tau, short: Tau) -> None:
        if self.trusted:
            good = tau.value > DISTRUST_AT * tau.error and not short.value < -TURNED_AT * short.error
        else:
            good = tau.value > TRUST_AT * tau.error and short.value > 0
        if good == self.trusted:
            return
        self.trusted = good
        self.trusted_times += good
        self.distrusted_times += not good
        if self._said_of:
            say = f"shadow {self._said_of}: its scores {'rank' if good else 'do not rank'}"
        else:
            say = "scores order requests" if good else "scores do not rank, so requests are served in turn"
        log.info(
            "parsim: %s: tau %.2f +- %.2f over the last %d finished requests",
            say,
            tau.value,
            tau.error,
            self._known,
        )

"""How many response tokens a score stands for, learned from the requests that finish."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

WINDOW = 1024
"""So many of the last finished requests count."""
FIRST = 32
"""No length is expected before so many have finished."""
BINS = 16
"""Points of the curve: groups of like scores, of equal size."""


class ExpectedLength:
    """Response tokens by score: a curve that never falls, fitted anew as requests finish.

    Predictors give scores on scales of their own; a guard by the ratio of wait to length, ageing and HRRN need tokens.
    The last `WINDOW` finished requests are cut into `BINS` groups by score; the mean lengths of the groups are made
    monotone (pool adjacent violators: Ayer et al. 1955), and between the groups' mean scores the curve is linear. So
    scores that rank at random, or backwards, come out as one length for all: what goes by it then goes by arrival.

    Under a queue that serves short ones first, short ones finish first: early on lengths are underestimated.

    Args:
        exact: scores are response tokens already.

    Attributes:
        version: grows with each fit; expected lengths from before are out of date.
    """

    def __init__(self, exact: bool = False) -> None:
        self.exact = exact
        self.version = 0
        self._finished: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._new: list[tuple[float, int]] = []
        self._due = FIRST
        self._scores: list[float] = []
        self._tokens: list[float] = []

    def observe(self, score: float, output_tokens: int) -> None:
        """A request with this score has finished after so many tokens."""
        if not self.exact:
            self._new.append((score, output_tokens))

    def refit(self) -> bool:
        """Fit anew if enough has finished since the last time; whether it was. Call once a step."""
        if len(self._new) < self._due:
            return False
        self._finished.extend(sorted(self._new))  # the order within a step is not the same in every engine
        self._new.clear()
        self._due = min(max(self._due, len(self._finished)), WINDOW // 4)
        self._fit()
        self.version += 1
        return True

    def of(self, score: float) -> float | None:
        """Expected response tokens, at least 1; None while nothing is known."""
        if self.exact:
            return max(score, 1.0)
        scores, tokens = self._scores, self._tokens
        if not scores:
            return None
        place = bisect_right(scores, score)
        if place == 0:
            return tokens[0]
        if place == len(scores):
            return tokens[-1]
        low, high = scores[place - 1], scores[place]
        share = (score - low) / (high - low)
        return tokens[place - 1] + share * (tokens[place] - tokens[place - 1])

    def _fit(self) -> None:
        pairs = sorted(self._finished)
        count = min(BINS, len(pairs))
        blocks: list[list[float]] = []  # sum of lengths, requests, groups
        scores: list[float] = []
        for number in range(count):
            group = pairs[number * len(pairs) // count : (number + 1) * len(pairs) // count]
            score = sum(score for score, _ in group) / len(group)
            total = float(sum(tokens for _, tokens in group))
            if scores and score <= scores[-1]:  # equal scores fill more than a group
                blocks[-1][0] += total
                blocks[-1][1] += len(group)
            else:
                scores.append(score)
                blocks.append([total, float(len(group)), 1.0])
            while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
                last = blocks.pop()
                blocks[-1] = [one + other for one, other in zip(blocks[-1], last, strict=True)]
        self._scores = scores
        self._tokens = [max(total / size, 1.0) for total, size, groups in blocks for _ in range(int(groups))]

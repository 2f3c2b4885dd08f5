"""Routers that look at nothing, or at the requests in flight alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

from parsim.router.router import Routed, View


class RoundRobin:
    """One engine after the other."""

    publish_s = 0.0

    def __init__(self) -> None:
        self._next = 0

    def choose(self, request: Routed, views: Sequence[View], now_s: float) -> int:
        """The engine after the last one."""
        chosen = self._next % len(views)
        self._next = chosen + 1
        return chosen


class Random:
    """Any engine, each as likely."""

    publish_s = 0.0

    def __init__(self, seed: int = 0) -> None:
        self._draw = random.Random(seed)

    def choose(self, request: Routed, views: Sequence[View], now_s: float) -> int:
        """Drawn."""
        return self._draw.randrange(len(views))


class LeastRequests:
    """The engine with the fewest requests in flight; of equal ones the first after the last choice, in turn."""

    publish_s = 0.0

    def __init__(self) -> None:
        self._start = 0

    def choose(self, request: Routed, views: Sequence[View], now_s: float) -> int:
        """The least loaded."""
        count = len(views)
        chosen = min(range(count), key=lambda i: (views[i].in_flight, (i - self._start) % count))
        self._start = chosen + 1
        return chosen


class PowerOfTwo:
    """The less loaded of two engines drawn without looking (Mitzenmacher 2001); of equal ones the first drawn."""

    publish_s = 0.0

    def __init__(self, seed: int = 0) -> None:
        self._draw = random.Random(seed)

    def choose(self, request: Routed, views: Sequence[View], now_s: float) -> int:
        """The less loaded of the two."""
        if len(views) == 1:
            return 0
        one, other = self._draw.sample(range(len(views)), 2)
        return other if views[other].in_flight < views[one].in_flight else one

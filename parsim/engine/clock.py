"""The clock that sources, engines and scorers share."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import simpy
from simpy.events import NORMAL, EventPriority

LATE = EventPriority(2)
"""After everything else of the same moment: an engine acts once all that reaches it then is there."""


class Moment(simpy.Event):
    """The moment `time_s` on a clock, not before now, which is sure to come; a process waits for it by `yield`.

    SimPy adds a delay to the time of now, and the sum misses some moments by a rounding; an arrival and a step boundary
    that are compared must be exact.
    """

    _ok = True
    _value = None

    def __init__(self, clock: Clock, time_s: float, priority: EventPriority = NORMAL) -> None:
        self.env = clock
        self.callbacks: list[Callable[[simpy.Event], None]] = []
        heappush(clock._queue, (time_s, priority, next(clock._eid), self))

    def sooner(self, time_s: float) -> Moment:
        """An earlier one, late in its moment, in place of this: those who wait for this wait for that."""
        moment = Moment(self.env, time_s, LATE)
        moment.callbacks, self.callbacks = self.callbacks, []
        return moment


class Clock(simpy.Environment):
    """A SimPy environment whose moments are exact. Times are in seconds."""

    def ring(self, event: simpy.Event) -> None:
        """Let `event` happen now, after everything else of this moment."""
        event._ok, event._value = True, None
        heappush(self._queue, (self._now, LATE, next(self._eid), event))

    def run_out(self) -> None:
        """`run` until nothing is left to happen, with its loop in one place."""
        queue = self._queue
        while queue:
            self._now, _, _, event = heappop(queue)
            callbacks, event.callbacks = event.callbacks, None
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise event._value

"""Two clocks for a replay in real time: the wall's, and the engine's own CPU time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

ClockName = Literal["wall", "cpu"]


class WallClock:
    """Seconds since the replay began, as everybody's, but for the work `outside` the engine."""

    def __init__(self) -> None:
        self._start = self._read()

    def now(self) -> float:
        """Seconds since the start."""
        return self._read() - self._start

    def wait_until(self, time_s: float) -> None:
        """Return at `time_s` (at once if it has passed): nothing is to be done before."""
        time.sleep(max(0.0, time_s - self.now()))

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Work during which this clock stands still: handing requests over, which a server does in another process."""
        before = self._read()
        yield
        self._start += self._read() - before

    def _read(self) -> float:
        return time.perf_counter()


class CpuClock(WallClock):
    """CPU time of this process; idle time is jumped over.

    Other processes that take turns on the same cores do not advance it, so that policies can be compared on a noisy
    machine. It is right only where the engine computes on the CPU in this process, on one thread.
    """

    def wait_until(self, time_s: float) -> None:
        self._start -= max(0.0, time_s - self.now())

    def _read(self) -> float:
        return time.process_time()


def make_clock(name: ClockName) -> WallClock:
    """A clock that starts now."""
    return WallClock() if name == "wall" else CpuClock()

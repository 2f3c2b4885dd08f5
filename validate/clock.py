"""Two clocks for a replay in real time: the wall's, and the engine's own CPU time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, Protocol

ClockName = Literal["wall", "cpu"]


class Clock(Protocol):
    """Seconds since the replay began."""

    name: ClockName

    def now(self) -> float:
        """Seconds since the start."""

    def wait_until(self, time_s: float) -> None:
        """Return at `time_s` (at once if it has passed): nothing is to be done before."""

    def outside(self) -> AbstractContextManager[None]:
        """Work that is not the engine's: handing requests over, which a server does in another process."""


class WallClock:
    """Time as everybody's; waiting sleeps."""

    name: ClockName = "wall"

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._start

    def wait_until(self, time_s: float) -> None:
        time.sleep(max(0.0, time_s - self.now()))

    def outside(self) -> AbstractContextManager[None]:
        return nullcontext()


class CpuClock:
    """CPU time of this process, with idle time jumped over and the work `outside` the engine left out.

    Other processes that take turns on the same cores do not advance it, so that policies can be compared on a noisy
    machine. It is right only where the engine computes on the CPU in this process, on one thread.
    """

    name: ClockName = "cpu"

    def __init__(self) -> None:
        self._start = time.process_time()
        self._jumped = 0.0

    def now(self) -> float:
        return time.process_time() - self._start + self._jumped

    def wait_until(self, time_s: float) -> None:
        self._jumped += max(0.0, time_s - self.now())

    @contextmanager
    def outside(self) -> Iterator[None]:
        before = time.process_time()
        yield
        self._jumped -= time.process_time() - before


def make_clock(name: ClockName) -> Clock:
    """A clock that starts now."""
    return WallClock() if name == "wall" else CpuClock()

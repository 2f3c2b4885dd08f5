"""A run of steps in which nothing can happen, advanced as one."""

from __future__ import annotations

from bisect import bisect_left

from parsim.engine.decoding import Decoding
from parsim.engine.step_time import StepTime

MOST_STEPS = 256
"""The most steps of a run: what an arrival cuts short was computed in vain."""


class Coast:
    """A promise: unless something comes, these steps follow, and all they do is decode.

    Why this is safe: a step decodes and nothing else until a sequence ends, blocks run out, or the queue changes. The
    first two are known beforehand; for the third the engine brings the end of the run forward (`cut`). The sums are
    those of step by step simulation in the same order, so that every boundary is the same to the last bit.

    Args:
        decoding, free: the sequences, and the blocks that can be taken.
        step: the last one that was formed.
        end_s: when the batch that is awaited ends and the first step is formed.
        begin_s: when the first step begins: then, or when the batch in flight has ended.
        in_flight: there is one beside that which is awaited (async scheduling).

    Attributes:
        steps: how many there are; 0 if there is none.
        times: step boundaries; the run ends at that with the number `steps`.
    """

    __slots__ = ("_lag", "_seconds", "steps", "times")

    def __init__(
        self,
        decoding: Decoding,
        step_time: StepTime,
        free: int,
        step: int,
        end_s: float,
        begin_s: float,
        in_flight: bool,
    ) -> None:
        ending, due, period = decoding.ending, decoding.due, decoding.block_size
        count, kv_tokens = decoding.count, decoding.kv_tokens
        seconds = self._seconds = step_time.decode_only(count)
        times = self.times = [end_s, begin_s] if in_flight else [begin_s]
        most = step + MOST_STEPS
        while step not in ending and step < most:
            step += 1
            free -= due[step % period]
            if free < 0:
                break
            begin_s += seconds(kv_tokens)
            kv_tokens += count
            times.append(begin_s)
        self._lag = int(in_flight)
        self.steps = len(times) - 1 - self._lag

    def settle(self, decoding: Decoding, step: int, used: int) -> tuple[int, float]:
        """Blocks that the steps after `step` take, `used` being in use before, and the integral of those in use over
        their time, in block seconds; the sequences have decoded on."""
        due, period, count, seconds = decoding.due, decoding.block_size, decoding.count, self._seconds
        kv_tokens, before, used_block_s = decoding.kv_tokens, used, 0.0
        for number in range(step + 1, step + self.steps + 1):
            used += due[number % period]
            used_block_s += used * seconds(kv_tokens)
            kv_tokens += count
        decoding.kv_tokens = kv_tokens
        return used - before, used_block_s

    @property
    def boundary_s(self) -> float:
        """When the run ends and the engine acts again."""
        return self.times[self.steps]

    @property
    def begin_s(self) -> float:
        """When the first step begins."""
        return self.times[self._lag]

    @property
    def end_s(self) -> float:
        """When the last step ends."""
        return self.times[self.steps + self._lag]

    def cut(self, time_s: float) -> bool:
        """End with the first step boundary that is not before `time_s`; whether that is any sooner."""
        steps = bisect_left(self.times, time_s, 0, self.steps + 1)
        if steps >= self.steps:
            return False
        self.steps = steps
        return True

    def formed(self, time_s: float) -> int:
        """How many of the steps were formed before `time_s`."""
        return bisect_left(self.times, time_s, 0, self.steps)

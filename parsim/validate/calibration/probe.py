"""How fast the machine is around a run: a CPU changes its speed with what else runs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from parsim.engine import EngineConfig
from parsim.validate.calibration.calibrate import measure, wave_like_the_trace
from parsim.validate.calibration.noise import at_speed, speed
from parsim.validate.live.clock import ClockName
from parsim.validate.live.live_engine import on_cuda
from parsim.validate.live.serving import Served


@dataclass(frozen=True)
class Timed:
    """A run and how much longer steps took around it than calibrated (1.1 = 10% longer).

    Attributes:
        served: the run.
        before, after: measured over calibrated step time then.
    """

    served: Served
    before: float
    after: float

    @property
    def speed(self) -> float:
        """The mean of before and after."""
        return (self.before + self.after) / 2

    @property
    def disturbance(self) -> float:
        """The larger of: wall time of the steps over their CPU time, minus 1; change of speed from before to after."""
        return max(self.served.stretch - 1, abs(self.after / self.before - 1))


@dataclass
class Probe:
    """Measures the machine's speed with one wave of requests on the idle engine. A GPU's is taken to be constant.

    What is measured after a run is what was before the next: runs follow one another at once.

    Attributes:
        engine: vLLM's `LLMEngine`.
        config: with the calibrated step time.
        clock: of the times.
        vocabulary: prompts are drawn from token ids below it.
        sample: (prompt, response) lengths to draw the wave from; none of its requests is one of the workload's.
        requests: in the wave.
        temperature: of the workload's sampling.
        seeds: each wave is another one, as the runs are.
    """

    engine: Any
    config: EngineConfig
    clock: ClockName
    vocabulary: int
    sample: Sequence[tuple[int, int]]
    requests: int
    temperature: float = 0.0
    seeds: Iterator[int] = field(default_factory=count)
    _last: float | None = None

    def around(self, run: Callable[[], Served]) -> Timed:
        """Run, with a measurement before and after."""
        before = self.speed() if self._last is None else self._last
        served = run()
        self._last = self.speed()
        return Timed(served, before, self._last)

    def speed(self) -> float:
        """Measured over calibrated time of one wave's steps."""
        if on_cuda():
            return 1.0
        wave = wave_like_the_trace(self.sample, self.requests, self.config.max_model_len, next(self.seeds))
        steps = measure(self.engine, [wave], self.clock, self.vocabulary, temperature=self.temperature)
        return speed(steps, self.config.step_time, self.clock)

    def at(self, factor: float) -> EngineConfig:
        """The engine when every step takes `factor` times as long as calibrated."""
        return self.config.model_copy(update={"step_time": at_speed(self.config.step_time, factor)})

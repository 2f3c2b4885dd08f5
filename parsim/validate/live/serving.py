"""A trace, open loop and in real time, on a vLLM engine in this process under one policy."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import polars as pl

from parsim.scheduler.policy import Policy
from parsim.scheduler.settings import SCORE_KEY, SchedulerSettings, settings_of
from parsim.validate.live.clock import ClockName, make_clock
from parsim.validate.live.live_engine import scheduler_of
from parsim.validate.live.step_recorder import StepRecorder

Lengths = Literal["forced", "natural"]
R = TypeVar("R")

BUSY = 1.10
"""Wall time of steps above this many times their CPU time: other processes took turns on the core. A machine whose
speed changes by as much from before a run to after it spoils that run too."""

TRIES = 4
"""Times that a run which other processes disturbed is made, at most."""


@dataclass(frozen=True)
class Job:
    """One request to serve.

    Attributes:
        request_id, arrival_s: of the trace.
        prompt_token_ids: what the engine is given.
        output_tokens: the response's length if it is forced, else the cap at which it is cut.
        score: what a ranked policy goes by; None for none.
    """

    request_id: str
    arrival_s: float
    prompt_token_ids: Sequence[int]
    output_tokens: int
    score: float | None = None


@dataclass(frozen=True)
class Served:
    """What came out.

    Attributes:
        requests: the columns of `parsim.simulation.Run.requests`, with the lengths that were really generated.
        steps: see `StepRecorder.frame`.
        clock: which one the times are on.
        load_average: the machine's 1-minute load before and after, per core.
        wall_s, cpu_s: inside steps, summed.
        scorer: counters of a scorer inside the engine, if there was one.
    """

    requests: pl.DataFrame
    steps: pl.DataFrame
    clock: ClockName
    load_average: tuple[float, float]
    wall_s: float
    cpu_s: float
    scorer: dict[str, float]

    @property
    def stretch(self) -> float:
        """Wall seconds in steps / CPU seconds in steps: above 1 where other processes took turns on the core."""
        return self.wall_s / max(self.cpu_s, 1e-9)


def random_prompt(request_id: str, tokens: int, vocabulary: int) -> list[int]:
    """Token ids that stand in for a prompt of a trace without text; the same for the same id, different between ids."""
    rng = np.random.default_rng(zlib.crc32(request_id.encode()))
    return rng.integers(4, vocabulary, tokens).tolist()


def undisturbed(run: Callable[[], R], disturbance: Callable[[R], float], tries: int = TRIES) -> tuple[R, int]:
    """Run until `disturbance` is at most `BUSY` - 1, at most `tries` times.

    Returns:
        The least disturbed run and how many were made.
    """
    best, made = run(), 1
    while disturbance(best) > BUSY - 1 and made < tries:
        best, made = min(best, run(), key=disturbance), made + 1
    return best, made


def serve(
    engine: Any,
    jobs: Sequence[Job],
    policy: Policy,
    *,
    clock: ClockName = "wall",
    lengths: Lengths = "forced",
    temperature: float = 0.0,
    scorer: str | None = None,
    advance: Callable[[int], None] = lambda finished: None,
) -> Served:
    """Serve `jobs`, each at its `arrival_s`, and wait until all are finished.

    Args:
        engine: an idle `LLMEngine` started with `ParsScheduler`.
        jobs: in order of arrival.
        policy: put into force before the first arrival; the prefix cache is emptied.
        lengths: `forced`: every response is as long as its job says; `natural`: the model stops by itself.
        scorer: `package.module:name` of a scorer that runs inside the engine, for jobs without a score.
        advance: called with the number of requests finished by each step.
    """
    scheduler = scheduler_of(engine)
    scheduler.serve_by(SchedulerSettings(**settings_of(policy), scorer=scorer if policy.ranked else None))
    engine.reset_prefix_cache()
    recorder = StepRecorder(engine)
    before = os.getloadavg()[0]
    time = make_clock(clock)
    scheduler.clock = time.now
    names: dict[str, str] = {}
    first: dict[str, float] = {}
    finish: dict[str, float] = {}
    length: dict[str, int] = {}
    coming = 0
    try:
        while coming < len(jobs) or engine.has_unfinished_requests():
            now = time.now()
            with time.outside():
                while coming < len(jobs) and jobs[coming].arrival_s <= now:
                    job = jobs[coming]
                    names[job.request_id] = _hand_over(engine, job, lengths, temperature)
                    coming += 1
            if not engine.has_unfinished_requests():
                time.wait_until(jobs[coming].arrival_s)
                continue
            recorder.begin(time.now())
            outputs = recorder.step()
            now = time.now()
            done = 0
            for output in outputs:
                key = output.request_id
                first.setdefault(key, now)
                length[key] = length.get(key, 0) + len(output.outputs[0].token_ids)
                if output.finished:
                    finish[key] = now
                    done += 1
            recorder.end()
            if done:
                advance(done)
    finally:
        recorder.close()
        scheduler.clock = _unix_time
    steps = recorder.frame()
    keys = [job.request_id for job in jobs]
    inner_ids = [names[key] for key in keys]
    requests = pl.DataFrame(
        {
            "request_id": keys,
            "arrival_s": [job.arrival_s for job in jobs],
            "first_scheduled_s": [recorder.first_scheduled_s[i] for i in inner_ids],
            "first_token_s": [first[key] for key in keys],
            "finish_s": [finish[key] for key in keys],
            "prompt_tokens": [len(job.prompt_token_ids) for job in jobs],
            "output_tokens": [length[key] for key in keys],
            "cached_tokens": [recorder.cached_tokens[i] for i in inner_ids],
            "preemptions": [recorder.preemptions.get(i, 0) for i in inner_ids],
            "score": pl.Series([job.score for job in jobs], dtype=pl.Float64),
        }
    )
    cores = os.cpu_count() or 1
    return Served(
        requests,
        steps,
        clock,
        (before / cores, os.getloadavg()[0] / cores),
        float(steps["wall_s"].sum()),
        float(steps["cpu_s"].sum()),
        {name: float(value) for name, value in scheduler.stats().items()},
    )


def _hand_over(engine: Any, job: Job, lengths: Lengths, temperature: float) -> str:
    """Add a job to the engine; returns the engine's own id of it."""
    from vllm import SamplingParams, TokensPrompt
    from vllm.sampling_params import RequestOutputKind

    params = SamplingParams(
        max_tokens=job.output_tokens,
        ignore_eos=lengths == "forced",
        temperature=temperature,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        extra_args=None if job.score is None else {SCORE_KEY: job.score},
    )
    prompt = TokensPrompt(prompt_token_ids=list(job.prompt_token_ids))
    inner: str = engine.add_request(job.request_id, prompt, params, arrival_time=job.arrival_s)
    return inner


def _unix_time() -> float:
    import time

    return time.time()

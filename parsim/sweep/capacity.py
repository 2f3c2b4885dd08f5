"""How many requests a second an engine sustains of a mix of requests: a property of the two, not of a trace's length.

A stationary run: requests of the mix, drawn again, wait before the engine all the time. Between its filling up and the
last admission every second is spent either on prompts, at the step time's own rates, or on decoding; so a response
token costs what the prompts leave of the time (`beta`), and a request of the mix costs the mean of
prompt + beta * response tokens. That mean is taken over all rows of the mix, so that which of them the window happened
to hold matters little; its interval holds the batch means of `beta` and the sampling error of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from parsim.engine import EngineConfig
from parsim.errors import UserError
from parsim.scheduler.policy import parse_policy
from parsim.sweep.execute import Runner
from parsim.sweep.point import Point
from parsim.sweep.workload import Workload

Floats = npt.NDArray[np.float64]
AT_ONCE = 1e9
"""A load at which all requests arrive together."""
REQUESTS = 16_000
PER_SEAT = 60
LEAST = 2000
"""Requests of the stationary run: `PER_SEAT` for every seat, from `LEAST` to `REQUESTS`. Long responses fill the seats
slowly: 16 a seat read 6% high on the bundled mix."""
MIX = 60_000
"""Rows over which the mean cost of a drawn mix is taken."""
FILLED = 0.3
"""The share of the run's admissions until which it is not stationary."""
BATCHES = 16
FEW = 100
"""A recorded mix of fewer rows has shown too little of its longest responses to tell what it costs."""
TELLS = 0.25
"""A capacity whose 95% interval reaches further than this share to either side is not told."""


@dataclass(frozen=True)
class Capacity:
    """Requests a second that the engine sustains, with a 95% interval.

    Attributes:
        rps, low, high: the estimate and its interval; NaN where nothing was completed in the window.
        rows: how many rows of the mix it rests on; None for a mix that is drawn from a distribution or a corpus.
        known: whether the interval is narrow enough to speak of it.
    """

    rps: float
    low: float
    high: float
    rows: int | None

    @property
    def known(self) -> bool:
        enough = self.rows is None or self.rows >= FEW
        return enough and self.rps > 0 and self.high <= self.rps * (1 + TELLS)


def stationary(runner: Runner, workload: Workload, engine: EngineConfig) -> Capacity:
    """The capacity of `engine` for the requests of `workload` under FCFS, simulated.

    Raises:
        UserError: the engine can run no request of the trace.
    """
    count = min(max(PER_SEAT * engine.max_num_seqs, LEAST), REQUESTS)
    seed = workload.seeds[0]
    point = Point(parse_policy("fcfs"), engine, AT_ONCE, seed, keep="requests", requests=count)
    requests = runner.run([point], "capacity")[0].requests
    if requests is None:
        raise ValueError("the run kept no requests")
    done = requests.filter(pl.col("finish_s").is_not_null())
    if done.is_empty():
        reason = str(requests["rejected"].drop_nulls().first())
        raise UserError(
            f"the engine rejects every request of the trace (the first: {reason}); give it more room"
        )
    mix = workload.trace(seed, MIX).frame if workload.redrawn else workload.first.frame
    fits = (
        pl.col("prompt_tokens") + pl.col("output_tokens")
        <= done.select((pl.col("prompt_tokens") + pl.col("output_tokens")).max()).item()
    )
    cached = float(done["cached_tokens"].sum()) / max(float(done["prompt_tokens"].sum()), 1.0)
    return estimate(done, mix.filter(fits), engine, cached, None if workload.redrawn else len(workload.first))


def estimate(
    done: pl.DataFrame, mix: pl.DataFrame, engine: EngineConfig, cached: float, rows: int | None
) -> Capacity:
    """The capacity from a saturated run.

    Args:
        done: its completed requests, all of which arrived at the start.
        mix: rows (`prompt_tokens`, `output_tokens`) over which the mean cost is taken.
        engine: whose step time gives what a prompt costs.
        cached: share of the prompt tokens found in the prefix cache.
        rows: how many rows of a recorded trace the mix has; None where it is drawn.
    """
    from scipy import stats

    nan = Capacity(math.nan, math.nan, math.nan, rows)
    admitted = done["first_scheduled_s"].sort()
    start, end = float(admitted.quantile(FILLED) or 0.0), float(admitted[-1])
    if not end > start:
        return nan
    edges = np.linspace(start, end, BATCHES + 1)
    first, token, finish = (done[c].to_numpy() for c in ("first_scheduled_s", "first_token_s", "finish_s"))
    output = done["output_tokens"].to_numpy().astype(float)
    prompts = np.diff(
        _spent(edges, first, token, prompt_s(done["prompt_tokens"].to_numpy() * (1 - cached), engine))
    )
    tokens = np.diff(_spent(edges, token, finish, output))
    width = (end - start) / BATCHES
    beta = max((end - start - prompts.sum()) / max(tokens.sum(), 1e-12), 0.0)
    cost = (
        prompt_s(mix["prompt_tokens"].to_numpy() * (1 - cached), engine)
        + beta * mix["output_tokens"].to_numpy()
    )
    mean = float(np.mean(cost))
    if not mean > 0:
        return nan
    strays = (width - prompts - beta * tokens) / width
    of_run = float(np.std(strays, ddof=1)) / BATCHES**0.5
    of_rows = float(np.std(cost)) / mean / max(len(cost), 1) ** 0.5
    half = float(stats.t.ppf(0.975, BATCHES - 1)) * math.hypot(of_run, of_rows)
    return Capacity(1 / mean, 1 / mean / (1 + half), (1 + half) / mean, rows)


def prompt_s(prompt: Floats, engine: EngineConfig) -> Floats:
    """Seconds that the tokens of a prompt add to steps."""
    step = engine.step_time
    return step.prefill_token_s * prompt + step.attention_pair_s * prompt * (prompt + 1) / 2


def _spent(edges: Floats, start: Floats, end: Floats, amount: Floats) -> Floats:
    """How much of every request's amount, spent evenly from its start to its end, lies before each edge, summed."""
    length = np.maximum(end - start, 1e-12)
    shares = np.clip((edges[:, None] - start) / length, 0.0, 1.0)
    return np.asarray(shares @ amount)

"""Five numbers of a step-time model, fitted through the simulator to requests that a real engine served.

The model is `parsim.engine.StepTime`. The fit minimises, over the requests it may see, the mean absolute error
of TTFT, decode time and end-to-end latency (each relative to its mean) plus half of the worst relative error
of the mean, p90 and p99 of TTFT, TPOT and E2E. Two stages: a robust least squares (scipy's trust region, on
the logarithms, so that each number stays positive), then Nelder-Mead restarted with ever smaller simplices,
since preemptions make the objective jump.

The first steps of a cold engine are slow. So the fit is made twice, the second time with one number more, the time at
which the engine starts; the better of the two is kept.

Standard errors are cluster-robust (sandwich; Liang and Zeger 1986) with clusters of neighbouring requests:
requests of one run are dependent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy.optimize import least_squares, minimize

from parsim.engine import EngineConfig, StepTime
from parsim.validate.calibration.replay import Array, Load, replay

TERMS = ("base_s", "prefill_token_s", "decode_seq_s", "kv_token_s", "attention_pair_s")
START = (1e-2, 1e-4, 1e-5, 1e-7, 1e-10)
"""Where a fit starts that was given nothing better: orders of magnitude of an 8B model on one card."""

_READY_S = 0.1
"""Where the fit of a cold engine's start begins."""

_READY_TRIED_S = (0.2, 0.4, 0.8, 1.6, 3.2)
"""Later starts, tried after the least squares, which see no further than the next requests."""

_REACH = 7.0
"""A term stays within e^7 of its start: on logarithms zero is out of reach."""

_PULL = 0.02
"""Residual that one e-fold away from the start counts as."""

_CLUSTER = 10

_EVALUATIONS = 8
"""Of the least-squares stage, Jacobians apart."""


@dataclass(frozen=True)
class Fit:
    """A fitted step-time model.

    Attributes:
        step_time: the five numbers.
        ready_s: when the engine starts, in seconds since the first arrival (see `replay`): 0 unless it was cold.
        relative_error: standard error of each, relative to it, by name; above 1 the data do not determine it.
        objective: the value reached.
        simulations: runs of the simulator, of both fits.
        cpu_s: CPU-seconds that the fit took.
        fitted: which requests it saw, one bool a request.
    """

    step_time: StepTime
    ready_s: float
    relative_error: dict[str, float]
    objective: float
    simulations: int
    cpu_s: float
    fitted: Array


def split(count: int, share: float, seed: int) -> Array:
    """Which requests are fitted: `share` of them, drawn evenly over the order of arrival.

    Of each run of neighbours as long as 1 / share one is drawn (at a share of one half: one of each pair), so
    that both parts see every phase of the run.
    """
    rng = np.random.default_rng((seed, count))
    rank = np.floor(np.arange(count) * share)
    starts = np.flatnonzero(np.diff(rank, prepend=-1.0))
    chosen = np.zeros(count, dtype=bool)
    for start, end in zip(starts, [*starts[1:], count], strict=True):
        chosen[rng.integers(start, end)] = True
    return chosen


def first(count: int, share: float) -> Array:
    """Which requests are fitted: the first `share` of them to arrive."""
    return np.arange(count) < np.ceil(count * share)


def latencies(frame: pl.DataFrame) -> Array:
    """TTFT, decode time and E2E latency in seconds, shape (3, requests)."""
    arrival, first, finish = (frame[c].to_numpy() for c in ("arrival_s", "first_token_s", "finish_s"))
    return np.stack([first - arrival, finish - first, finish - arrival])


def headline(latency: Array, output_tokens: Array) -> Array:
    """Mean, p90 and p99 of TTFT, TPOT and E2E, shape (3, 3): a row a latency, a column a statistic."""
    tpot = latency[1] / np.maximum(output_tokens - 1, 1)
    several = output_tokens > 1
    rows = (latency[0], tpot[several] if several.any() else tpot, latency[2])
    return np.array([[row.mean(), *np.percentile(row, (90, 99))] for row in rows])


def summed(step_time: StepTime) -> dict[str, float]:
    """Seconds of each of `TERMS` as if nothing overlapped."""
    always_s = step_time.base_s + step_time.weights_s + step_time.experts_s
    own = {name: getattr(step_time, name) for name in TERMS}
    token_s = step_time.token_s
    return own | {
        "base_s": always_s,
        "prefill_token_s": step_time.prefill_token_s + token_s,
        "decode_seq_s": step_time.decode_seq_s + token_s,
    }


def _origin(roofline: StepTime) -> Array:
    """Terms to start from: a roofline's; arithmetic of decoding sequences hides behind the reading of the weights."""
    terms = np.array([*(summed(roofline) | {"decode_seq_s": roofline.decode_seq_s}).values()])
    return np.where(terms > 0, terms, START)


class Problem:
    """Measured requests, the part that may be seen, and how far a step-time model is off on it.

    A point is the logarithms of the terms over their start and, of a cold engine, of `ready_s` over its start.
    """

    def __init__(
        self,
        load: Load,
        measured: pl.DataFrame,
        config: EngineConfig,
        fitted: Array,
        start: StepTime | None,
        cold: bool = False,
    ) -> None:
        self.load = load
        self.config = config
        self.fitted = fitted
        self.output = measured["output_tokens"].to_numpy()[fitted]
        self.real = latencies(measured)[:, fitted]
        self.scale = np.maximum(self.real.mean(axis=1, keepdims=True), 1e-9)
        self.goal = np.maximum(headline(self.real, self.output), 1e-9)
        terms = _origin(start) if start else np.array(START)
        self.origin = np.append(terms, _READY_S) if cold else terms
        self.runs = 0

    def numbers(self, logs: Array) -> tuple[StepTime, float]:
        """The step time and `ready_s` at a point."""
        numbers = self.origin * np.exp(np.clip(logs, -_REACH, _REACH))
        terms, ready_s = numbers[: len(TERMS)], numbers[len(TERMS) :]
        step_time = StepTime(**dict(zip(TERMS, map(float, terms), strict=True)), source="fitted")
        return step_time, float(ready_s.sum())

    def model(self, logs: Array) -> Array:
        """Latencies of the seen requests in the simulator, shape (3, seen)."""
        self.runs += 1
        step_time, ready_s = self.numbers(logs)
        config = self.config.model_copy(update={"step_time": step_time})
        return latencies(replay(self.load, config, ready_s=ready_s))[:, self.fitted]

    def residuals(self, logs: Array) -> Array:
        """Relative to the mean latency; a request a column, a latency a row, flattened."""
        return ((self.model(logs) - self.real) / self.scale).ravel()

    def held(self, logs: Array) -> Array:
        """The residuals, and a weak pull to the start that settles what the data leave open."""
        return np.concatenate([self.residuals(logs), _PULL * logs])

    def objective(self, logs: Array) -> float:
        """What the fit minimises."""
        return self._off(self.model(logs))

    def distance(self, made: pl.DataFrame) -> float:
        """The objective of a run that another engine made of the load."""
        return self._off(latencies(made)[:, self.fitted])

    def _off(self, made: Array) -> float:
        worst = np.abs(headline(made, self.output) / self.goal - 1).max()
        return float(np.abs((made - self.real) / self.scale).mean() + 0.5 * worst)

    def least_squares(self, begin: Array | None = None) -> Array:
        """The robust least-squares stage, from `begin` or the start."""
        return least_squares(
            self.held,
            np.zeros(len(self.origin)) if begin is None else begin,
            diff_step=0.02,
            loss="soft_l1",
            f_scale=0.02,
            max_nfev=_EVALUATIONS,
        ).x

    def best(self, progress: Callable[[str, float], None], begin: Array | None = None) -> tuple[Array, float]:
        """Where both stages end, and the objective there. `begin`: where the fit of a warm engine ended."""
        here = self.least_squares(begin)
        if len(here) > len(TERMS):
            others = [np.append(here[:-1], np.log(ready_s / _READY_S)) for ready_s in _READY_TRIED_S]
            here = min((here, *others), key=self.objective)
        reached = self.objective(here)
        progress("least squares", reached)
        count = len(here)
        for size in (0.1, 0.05, 0.03):
            simplex = here + np.vstack([np.zeros(count), size * np.eye(count)])
            result = minimize(
                self.objective, here, method="Nelder-Mead", options={"maxfev": 90, "initial_simplex": simplex}
            )
            here, reached = result.x, float(result.fun)
            progress(f"simplex of {size:.0%}", reached)
        return here, reached


def fit_step_time(
    measured: pl.DataFrame,
    config: EngineConfig,
    *,
    fitted: Array,
    start: StepTime | None = None,
    progress: Callable[[str, float], None] = lambda stage, objective: None,
    load: Load | None = None,
) -> Fit:
    """Fit the step time of `config` to the rows of `measured` that `fitted` marks.

    Args:
        measured: `Measured.requests`, all of them: the simulator needs the whole load.
        config: everything but the step time, which is replaced.
        fitted: one bool a request.
        start: where to begin, for example a roofline.
        progress: called after each stage with its name and the objective it reached.
        load: what was asked, where more than one engine served it.
    """
    load = load or Load.of(measured)
    began = time.process_time()
    problems = [Problem(load, measured, config, fitted, start, cold) for cold in (False, True)]
    ends = [problem.best(progress) for problem in problems]
    problem, (here, reached) = min(zip(problems, ends, strict=True), key=lambda found: found[1][1])
    errors = _sandwich(problem.residuals, here)
    step_time, ready_s = problem.numbers(here)
    return Fit(
        step_time,
        ready_s,
        dict(zip(TERMS, map(float, errors[: len(TERMS)]), strict=True)),
        reached,
        sum(problem.runs for problem in problems),
        time.process_time() - began,
        fitted,
    )


def rough_step_time(
    load: Load, measured: pl.DataFrame, config: EngineConfig, *, fitted: Array, start: StepTime | None = None
) -> StepTime:
    """The step time after the first stage, the least squares."""
    problem = Problem(load, measured, config, fitted, start)
    return problem.numbers(problem.least_squares())[0]


def _sandwich(residuals: Callable[[Array], Array], here: Array, width: float = 0.05) -> Array:
    """Cluster-robust standard errors of the logarithms, that is relative ones of the numbers, one a number."""
    base = residuals(here)
    jacobian = np.stack(
        [
            (residuals(here + width * e) - residuals(here - width * e)) / (2 * width)
            for e in np.eye(len(here))
        ],
        axis=1,
    )
    requests = base.size // 3
    cluster = np.tile(np.arange(requests) // _CLUSTER, 3)
    pull = np.stack([(jacobian * base[:, None])[cluster == c].sum(axis=0) for c in range(cluster.max() + 1)])
    bread = np.linalg.pinv(jacobian.T @ jacobian)
    count = len(pull)
    return np.sqrt(np.diag(bread @ (pull.T @ pull) @ bread) * count / max(count - 1, 1))

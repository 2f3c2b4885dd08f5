"""Five numbers of a step-time model, fitted through the simulator to requests that a real engine served.

The model is `parsim.engine.StepTime`. The fit minimises, over the requests it may see, the mean absolute error
of TTFT, decode time and end-to-end latency (each relative to its mean) plus half of the worst relative error
of the mean, p90 and p99 of TTFT, TPOT and E2E. Two stages: a robust least squares (scipy's trust region, on
the logarithms, so that each number stays positive), then Nelder-Mead restarted with ever smaller simplices,
since preemptions make the objective jump.

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
from validate.replay import Array, Load, replay

TERMS = ("base_s", "prefill_token_s", "decode_seq_s", "kv_token_s", "attention_pair_s")
START = (1e-2, 1e-4, 1e-5, 1e-7, 1e-10)
"""Where a fit starts that was given nothing better: orders of magnitude of an 8B model on one card."""

_REACH = 7.0
"""A term stays within e^7 of its start: on logarithms zero is out of reach."""

_PULL = 0.02
"""Residual that one e-fold away from the start counts as."""

_CLUSTER = 10


@dataclass(frozen=True)
class Fit:
    """A fitted step-time model.

    Attributes:
        step_time: the five numbers.
        relative_error: standard error of each, relative to it, by name; above 1 the data do not determine it.
        objective: the value reached.
        simulations: runs of the simulator.
        cpu_s: CPU-seconds that the fit took.
        fitted: which requests it saw, one bool a request.
    """

    step_time: StepTime
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


def _overlapped(roofline: StepTime) -> Array:
    """Terms to start from: a roofline's, less what a real step hides behind the reading of the weights.

    A roofline adds up what a GPU overlaps: the FLOPs of decoding sequences cost next to nothing while the weights
    are read, and attention runs beside the projections.
    """
    terms = np.array([getattr(roofline, term) for term in TERMS])
    return np.where(terms > 0, terms * (1.0, 0.75, 0.08, 1.35, 0.2), START)


class _Problem:
    """Measured requests, the part that may be seen, and how far a step-time model is off on it."""

    def __init__(
        self, measured: pl.DataFrame, config: EngineConfig, fitted: Array, start: StepTime | None
    ) -> None:
        self.load = Load.of(measured)
        self.config = config
        self.fitted = fitted
        self.output = measured["output_tokens"].to_numpy()[fitted]
        self.real = latencies(measured)[:, fitted]
        self.scale = np.maximum(self.real.mean(axis=1, keepdims=True), 1e-9)
        self.goal = np.maximum(headline(self.real, self.output), 1e-9)
        self.origin = _overlapped(start) if start else np.array(START)
        self.runs = 0

    def step_time(self, logs: Array) -> StepTime:
        """The step time whose terms are `exp(logs)` times the start."""
        terms = self.origin * np.exp(np.clip(logs, -_REACH, _REACH))
        return StepTime(**dict(zip(TERMS, map(float, terms), strict=True)), source="fitted")

    def model(self, logs: Array) -> Array:
        """Latencies of the seen requests in the simulator, shape (3, seen)."""
        self.runs += 1
        config = self.config.model_copy(update={"step_time": self.step_time(logs)})
        return latencies(replay(self.load, config))[:, self.fitted]

    def residuals(self, logs: Array) -> Array:
        """Relative to the mean latency; a request a column, a latency a row, flattened."""
        return ((self.model(logs) - self.real) / self.scale).ravel()

    def held(self, logs: Array) -> Array:
        """The residuals, and a weak pull to the start that settles what the data leave open."""
        return np.concatenate([self.residuals(logs), _PULL * logs])

    def objective(self, logs: Array) -> float:
        """What the fit minimises."""
        made = self.model(logs)
        worst = np.abs(headline(made, self.output) / self.goal - 1).max()
        return float(np.abs((made - self.real) / self.scale).mean() + 0.5 * worst)

    def least_squares(self, evaluations: int) -> Array:
        """The robust least-squares stage, from the start."""
        return least_squares(
            self.held, np.zeros(5), diff_step=0.02, loss="soft_l1", f_scale=0.02, max_nfev=evaluations
        ).x


def fit_step_time(
    measured: pl.DataFrame,
    config: EngineConfig,
    *,
    fitted: Array,
    start: StepTime | None = None,
    progress: Callable[[str, float], None] = lambda stage, objective: None,
) -> Fit:
    """Fit the step time of `config` to the rows of `measured` that `fitted` marks.

    Args:
        measured: `Measured.requests`, all of them: the simulator needs the whole load.
        config: everything but the step time, which is replaced.
        fitted: one bool a request.
        start: where to begin, for example a roofline.
        progress: called after each stage with its name and the objective it reached.
    """
    began = time.process_time()
    problem = _Problem(measured, config, fitted, start)
    here = problem.least_squares(8)
    reached = problem.objective(here)
    progress("least squares", reached)
    for size in (0.1, 0.05, 0.03):
        result = minimize(
            problem.objective,
            here,
            method="Nelder-Mead",
            options={"maxfev": 90, "initial_simplex": here + np.vstack([np.zeros(5), size * np.eye(5)])},
        )
        here, reached = result.x, float(result.fun)
        progress(f"simplex of {size:.0%}", reached)
    errors = _sandwich(problem.residuals, here)
    return Fit(
        problem.step_time(here),
        dict(zip(TERMS, map(float, errors), strict=True)),
        reached,
        problem.runs,
        time.process_time() - began,
        fitted,
    )


def fit_blocks(
    measured: pl.DataFrame, config: EngineConfig, *, fitted: Array, start: StepTime | None = None, top: int
) -> int:
    """The `num_gpu_blocks` that reproduces the measured requests best, between what one request needs and `top`.

    Nine sizes in geometric progression, each with a short fit of the step time.
    """
    tokens = (measured["prompt_tokens"] + measured["output_tokens"]).to_numpy()
    least = -(-int(tokens.max()) // config.block_size) + 2
    sizes = np.unique(np.geomspace(least, max(top, least + 1), 9).astype(int))
    costs = []
    for size in sizes:
        problem = _Problem(measured, config.model_copy(update={"num_gpu_blocks": int(size)}), fitted, start)
        costs.append(problem.objective(problem.least_squares(4)))
    return int(sizes[int(np.argmin(costs))])


def _sandwich(residuals: Callable[[Array], Array], here: Array, width: float = 0.05) -> Array:
    """Cluster-robust standard errors of the logarithms, that is relative ones of the numbers, shape (5,)."""
    base = residuals(here)
    jacobian = np.stack(
        [(residuals(here + width * e) - residuals(here - width * e)) / (2 * width) for e in np.eye(5)], axis=1
    )
    requests = base.size // 3
    cluster = np.tile(np.arange(requests) // _CLUSTER, 3)
    pull = np.stack([(jacobian * base[:, None])[cluster == c].sum(axis=0) for c in range(cluster.max() + 1)])
    bread = np.linalg.pinv(jacobian.T @ jacobian)
    count = len(pull)
    return np.sqrt(np.diag(bread @ (pull.T @ pull) @ bread) * count / max(count - 1, 1))

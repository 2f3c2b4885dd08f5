"""Measure the step times of the engine at hand and fit the five numbers of `StepTime` to them.

A designed set of waves covers prefill sizes, numbers of decoding sequences, contexts, and mixtures of them. Sizes
differ from step to step, as a trace's do: one that came lately is quicker. Every fourth wave is held out. The fit is a
bounded least squares, each squared error divided by the step's time; it is scaled at the end so that the sum of all
fitted steps is right, since a simulated run adds steps up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import lsq_linear

from parsim.engine import EngineConfig, StepTime
from parsim.errors import UserError
from parsim.scheduler.policy import POLICIES
from parsim.validate.calibration.fit import TERMS, Array
from parsim.validate.live.clock import ClockName
from parsim.validate.live.live_engine import on_cuda, resolved_facts
from parsim.validate.live.serving import BUSY, Job, random_prompt, serve
from parsim.validate.recordings.measured import MOST

TOTALS = ("prefill_tokens", "decode_seqs", "kv_tokens", "attention_pairs")
Wave = list[tuple[float, int, int]]
"""Requests as (arrival in s, prompt tokens, response tokens)."""

HELD_OUT_EVERY = 4
FEWEST = 40
"""Steps that a fit needs."""

LIKE_THE_TRACE = 2
LIKE_THE_TRACE_SIZE = 8
"""Waves of so many times as many requests as run at once, drawn from the workload to come and arriving one by one, so
that they queue as those will: with fewer, the steps of the end, when few are left, would count for too much."""

GAP_S = 0.005
"""Mean gap between their arrivals: short enough to saturate the engine."""

WARM_UP = 4
"""Waves that are run once unmeasured: the first steps of a process are slow."""

WARM_UP_S = 10.0
"""Longest time for the first steps of every size, in s: a model that needs longer computes longer than it prepares."""

ENOUGH_CALM = 0.3
"""Share of the steps of a calibration that must be undisturbed for the others to be left out."""


_OUTLIER = 10.0
"""A step that takes so many times what the fit says was interrupted."""


@dataclass(frozen=True)
class Calibration:
    """A step-time model and how well it fits.

    Attributes:
        step_time: with `fit_error`: median, p90 and total relative error on held-out steps.
        steps: the measured steps: the totals, measured_ms, predicted_ms, held_out, kind (prefill or decode only).
    """

    step_time: StepTime
    steps: pl.DataFrame


def design(config: dict[str, Any], sample: Sequence[tuple[int, int]] = (), seed: int = 0) -> list[Wave]:
    """The waves for an engine with these settings (`EngineConfig`'s names).

    Args:
        sample: (prompt, response) lengths of the workload to come; waves drawn from them are added, since that is
            where the model has to be right.
    """
    rng = np.random.default_rng(seed)
    most = config["max_num_seqs"]
    longest = config["max_model_len"] - 32
    pool = (config["num_gpu_blocks"] - 1) * config["block_size"]
    sizes = [s for s in (16, 64, 128, 256, 512, 1024, 2048, 4096) if s <= min(longest, pool // 2)]
    if sample:
        sizes = sorted(
            {int(s) for s in np.percentile([p for p, _ in sample], (5, 25, 50, 75, 95, 100)) if s >= 1}
        )
    counts = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n < most] + [most]
    waves: list[Wave] = [[(0.0, size, 3)] for size in sizes]
    waves += [
        [(0.0, int(rng.integers(max(1, 3 * context // 4), context + 1)), 12) for _ in range(count)]
        for count in counts
        for context in sizes[::2]
        if count * (context + 12 + config["block_size"]) <= pool
    ]
    for number in range(LIKE_THE_TRACE):
        like = sample or [(int(rng.choice(sizes)), int(rng.integers(4, 64))) for _ in range(4 * most)]
        waves.append(
            wave_like_the_trace(like, LIKE_THE_TRACE_SIZE * most, config["max_model_len"], (seed, number))
        )
    return [waves[i] for i in rng.permutation(len(waves))]


def wave_like_the_trace(
    sample: Sequence[tuple[int, int]], requests: int, max_model_len: int, seed: int | tuple[int, ...]
) -> Wave:
    """A wave of so many requests with (prompt, response) lengths drawn from `sample`."""
    rng = np.random.default_rng(seed)
    longest = max_model_len - 32
    picked = [sample[i] for i in rng.integers(0, len(sample), requests)]
    arrival = np.cumsum(rng.exponential(GAP_S, len(picked)))
    return [
        (float(t), min(p, longest), min(o, longest + 32 - p))
        for t, (p, o) in zip(arrival, picked, strict=True)
    ]


def measure(
    engine: Any,
    waves: Sequence[Wave],
    clock: ClockName,
    vocabulary: int,
    advance: Callable[[int], None] = lambda waves: None,
    temperature: float = 0.0,
) -> pl.DataFrame:
    """Run the waves one after the other on an idle engine; every step a row, with `wave` and `measured_ms`.

    `temperature`: of the workload to come; drawing tokens costs time that taking the likeliest does not.

    Where other processes disturbed a CPU (`BUSY`), the steps that they hit are left out while enough others remain.
    """
    frames = []
    for number, wave in enumerate(waves):
        jobs = [
            Job(f"w{number}-{i}", at, random_prompt(f"w{number}-{i}", prompt, vocabulary), output)
            for i, (at, prompt, output) in enumerate(wave)
        ]
        served = serve(engine, jobs, POLICIES["fcfs"], clock=clock, temperature=temperature)
        frames.append(served.steps.with_columns(pl.lit(number).alias("wave")))
        advance(number + 1)
    column = "cpu_s" if clock == "cpu" else "wall_s"
    steps = pl.concat(frames)
    calm = steps.filter(pl.col("wall_s") <= BUSY * pl.col("cpu_s"))
    disturbed = float(steps["wall_s"].sum()) > BUSY * float(steps["cpu_s"].sum())
    if disturbed and not on_cuda() and calm.height >= ENOUGH_CALM * steps.height:
        steps = calm
    return steps.with_columns((pl.col(column) * 1e3).alias("measured_ms"))


def fit_steps(steps: pl.DataFrame, provenance: str) -> Calibration:
    """Fit the five numbers to measured steps.

    Args:
        steps: the totals, `measured_ms`, and `wave` (every `HELD_OUT_EVERY`th is held out; without it, every
            fourth hundred of steps).

    Raises:
        UserError: there are too few steps.
    """
    if steps.height < FEWEST:
        raise UserError(f"{provenance}: too few to fit five numbers ({FEWEST} needed)")
    group = pl.col("wave") if "wave" in steps.columns else pl.int_range(pl.len()) // 100
    steps = steps.with_columns(held_out=group % HELD_OUT_EVERY == HELD_OUT_EVERY - 1)
    if steps["held_out"].all() or not steps["held_out"].any():
        steps = steps.with_columns(held_out=pl.int_range(pl.len()) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1)
    matrix, seconds = _matrix(steps), steps["measured_ms"].to_numpy() / 1e3
    seen = ~steps["held_out"].to_numpy()
    terms = _solve(matrix[seen], seconds[seen])
    predicted = matrix @ terms
    residual = np.abs(predicted / seconds - 1)[~seen]
    error = {
        "median_step": float(np.median(residual)),
        "p90_step": float(np.percentile(residual, 90)),
        "total": float(predicted[~seen].sum() / seconds[~seen].sum() - 1),
    }
    step_time = StepTime(
        **dict(zip(TERMS, map(float, terms), strict=True)),
        source="fitted",
        provenance=provenance,
        fit_error=error,
    )
    return Calibration(
        step_time,
        steps.with_columns(
            pl.Series("predicted_ms", predicted * 1e3),
            pl.when(pl.col("prefill_tokens") > 0)
            .then(pl.lit("with prefill"))
            .otherwise(pl.lit("decode"))
            .alias("kind"),
        ),
    )


def _matrix(steps: pl.DataFrame) -> Array:
    totals = steps.select(*TOTALS).cast(pl.Float64).to_numpy()
    return np.column_stack([np.ones(len(totals)), totals])


def _solve(matrix: Array, seconds: Array) -> Array:
    """Non-negative terms of a least squares weighted by 1 / expected seconds, of the right sum.

    A slow step weighs no less than others: steps with prefill are slow now and then in every run, and the model stands
    for their mean. Only interrupted ones are left out.
    """
    keep = np.ones(len(seconds), dtype=bool)
    expected = seconds
    for _ in range(3):
        weight = 1.0 / np.sqrt(expected[keep])
        scaled = matrix[keep] * weight[:, None]
        size = np.maximum(np.abs(scaled).max(axis=0), 1e-12)
        terms = lsq_linear(scaled / size, seconds[keep] * weight, bounds=(0, np.inf)).x / size
        terms[0] = max(terms[0], 1e-7)
        expected = matrix @ terms
        keep = seconds < _OUTLIER * expected
    return terms * seconds[keep].sum() / expected[keep].sum()


def calibrate_engine(
    engine: Any,
    name: str,
    clock: ClockName,
    vocabulary: int,
    sample: Sequence[tuple[int, int]] = (),
    advance: Callable[[int, int], None] = lambda done, waves: None,
    seed: int = 0,
    temperature: float = 0.0,
) -> tuple[EngineConfig, Calibration]:
    """Measure and fit the engine at hand; its resolved settings come from itself."""
    facts = resolved_facts(engine)
    waves = design(facts, sample, seed)
    if not on_cuda():
        _every_size_once(engine, facts, vocabulary)
    measure(engine, waves[:WARM_UP], clock, vocabulary, temperature=temperature)
    steps = measure(engine, waves, clock, vocabulary, lambda done: advance(done, len(waves)), temperature)
    word = "the engine's CPU clock" if clock == "cpu" else "the wall clock"
    calibration = fit_steps(steps, f"fitted to {steps.height} steps of {len(waves)} designed waves on {word}")
    config = EngineConfig.model_validate(
        {
            **facts,
            "name": name,
            "provenance": f"settings as vLLM resolved them for {name}",
            "step_time": calibration.step_time,
        }
    )
    return config, calibration


def _every_size_once(engine: Any, facts: dict[str, Any], vocabulary: int) -> None:
    """A step of every number of tokens: a CPU prepares kernels for each when it first comes, which takes longer than a
    small model's step."""
    pool = (facts["num_gpu_blocks"] - 2) * facts["block_size"]
    sizes = range(1, min(facts["max_num_batched_tokens"], facts["max_model_len"] - 1, pool) + 1)
    end = time.monotonic() + WARM_UP_S
    for size in sizes:
        if time.monotonic() > end:
            break
        serve(
            engine,
            [Job(f"size-{size}", 0.0, random_prompt(f"size-{size}", size, vocabulary), 1)],
            POLICIES["fcfs"],
        )


def read_step_log(path: Path) -> pl.DataFrame:
    """A step log: the totals and `measured_ms`, or a `duration_s` (as `simulate --steps` writes it), `cpu_s`, `wall_s`.

    Raises:
        UserError: not Parquet, a column is missing, there are too few rows, or one holds no finite number, above 0
            for the duration.
    """
    try:
        steps = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UserError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]})") from error
    durations = ("measured_ms", "duration_s", "cpu_s", "wall_s")
    duration = next((name for name in durations if name in steps.columns), "duration_s")
    needed = [*TOTALS, duration, *(["wave"] if "wave" in steps.columns else [])]
    for name in needed:
        if name not in steps.columns:
            raise UserError(f"{path}: no column {name!r}; a step log has {', '.join(TOTALS)} and duration_s")
        if not steps.schema[name].is_numeric():
            raise UserError(f"{path}: column {name!r} holds {steps.schema[name]}, expected numbers")
    if steps.height < FEWEST:
        raise UserError(f"{path}: {steps.height} steps are too few to fit five numbers ({FEWEST} needed)")
    fine = pl.all_horizontal(
        pl.col(name).cast(pl.Float64).is_between(0.0, MOST).fill_null(False) for name in needed
    )
    bad = steps.with_row_index("row", offset=1).filter(~fine | (pl.col(duration) <= 0))
    if bad.height:
        row = bad.row(0, named=True)
        found = ", ".join(f"{name} {row[name]}" for name in needed)
        raise UserError(
            f"{path}: row {row['row']} ({found}): totals must be 0 or more and {duration} above 0, all of them finite; "
            "mend or remove the row"
        )
    scale = 1.0 if duration == "measured_ms" else 1e3
    return steps.with_columns((pl.col(duration) * scale).alias("measured_ms"))

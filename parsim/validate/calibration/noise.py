"""Did the machine spoil the run? Other load, a drifting clock speed, and what the report says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from parsim.engine import StepTime
from parsim.validate.calibration.calibrate import TOTALS
from parsim.validate.live.clock import ClockName
from parsim.validate.live.serving import BUSY, Served

DRIFT = 0.05
"""A device that changes its speed by more than this from the first to the last third of the run drifted."""


@dataclass(frozen=True)
class Noise:
    """What the machine did besides.

    Attributes:
        stretch: wall seconds in steps / CPU seconds in steps; NaN on a GPU, where the CPU waits.
        load_average: largest 1-minute load average per core around a run.
        drift: change of (measured / predicted step time) from the first to the last third of all runs.
        bias: median of measured / predicted step time, minus 1, over all runs.
        notes: in words; what spoilt the run first.
    """

    stretch: float
    load_average: float
    drift: float
    bias: float
    notes: tuple[str, ...]

    @property
    def spoilt(self) -> bool:
        """Whether the wall clock's figures should not be trusted."""
        return self.stretch > BUSY or abs(self.drift) > DRIFT


def check_noise(runs: Sequence[Served], step_time: StepTime, clock: ClockName, on_cpu: bool) -> Noise:
    """Look at all runs in the order in which they were made."""
    stretch = sum(r.wall_s for r in runs) / max(sum(r.cpu_s for r in runs), 1e-9) if on_cpu else float("nan")
    load = max(max(r.load_average) for r in runs)
    ratios = np.concatenate([_ratios(r.steps, step_time, clock) for r in runs])
    third = max(len(ratios) // 3, 1)
    drift = float(np.median(ratios[-third:]) / np.median(ratios[:third]) - 1)
    bias = float(np.median(ratios) - 1)
    notes = []
    if stretch > BUSY:
        notes.append(
            f"other processes took turns on the core: steps took {stretch:.2f} times their CPU time on the wall clock, "
            "so wall-clock latencies are spoilt; the CPU clock's are not"
        )
    if abs(drift) > DRIFT:
        notes.append(
            f"the device drifted: steps took {drift:+.1%} longer in the last third of the runs than in the first"
        )
    if not notes:
        notes.append("no sign of other load or of a drifting clock speed")
    notes.append(
        f"load average per core up to {load:.2f}; median step {bias:+.1%} against the calibrated model, "
        f"drift {drift:+.1%}"
    )
    return Noise(stretch, load, drift, bias, tuple(notes))


def speed(steps: pl.DataFrame, step_time: StepTime, clock: ClockName) -> float:
    """How much longer the steps took than the model says, over their sum: 1.1 = 10% longer."""
    totals = [steps[name].to_numpy() for name in TOTALS]
    measured = steps["cpu_s" if clock == "cpu" else "wall_s"].to_numpy()
    return float(measured.sum() / step_time.seconds(*totals).sum())  # type: ignore[arg-type, attr-defined]


def at_speed(step_time: StepTime, factor: float) -> StepTime:
    """The same machine when every step takes `factor` times as long."""
    terms = {name: getattr(step_time, name) * factor for name in StepTime.model_fields if name.endswith("_s")}
    return step_time.model_copy(update=terms)


def _ratios(steps: pl.DataFrame, step_time: StepTime, clock: ClockName) -> np.ndarray:
    totals = [steps[name].to_numpy() for name in TOTALS]
    return steps["cpu_s" if clock == "cpu" else "wall_s"].to_numpy() / step_time.seconds(*totals)  # type: ignore[arg-type]


def residuals(runs: Sequence[Served], step_time: StepTime, clock: ClockName) -> pl.DataFrame:
    """Measured and predicted milliseconds of every step of the runs, for the page."""
    steps = pl.concat([run.steps for run in runs])
    totals = [steps[name].to_numpy() for name in TOTALS]
    return steps.select(
        (pl.col("cpu_s" if clock == "cpu" else "wall_s") * 1e3).alias("measured_ms"),
        pl.Series("predicted_ms", step_time.seconds(*totals) * 1e3),  # type: ignore[arg-type]
        pl.when(pl.col("prefill_tokens") > 0)
        .then(pl.lit("with prefill"))
        .otherwise(pl.lit("decode"))
        .alias("kind"),
    )

"""An engine file from the engine at hand, from a step log, or from a recording."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from parsim.engine import EngineConfig, load_engine
from parsim.errors import UserError
from parsim.progress import progress_bar
from parsim.traces import bundled_trace, read_trace
from parsim.validate.calibration.calibrate import calibrate_engine, fit_steps, read_step_log
from parsim.validate.calibration.card import find_card
from parsim.validate.calibration.recording import FAILED, calibrate, predict, unfitted
from parsim.validate.live.clock import ClockName
from parsim.validate.live.engine_settings import engine_settings
from parsim.validate.live.live_engine import on_cuda, require_vllm
from parsim.validate.tiers.policies import CPU_SETTINGS, open_engine


def from_engine(
    model: str,
    settings: Mapping[str, Any],
    *,
    dummy: bool,
    trace: str | None,
    clock: str,
    seed: int,
    console: Any,
) -> EngineConfig:
    """Start the engine, measure it, and fit.

    Raises:
        UserError: vLLM is missing, or the clock is none.
    """
    require_vllm()
    if clock not in (*get_args(ClockName), "auto"):
        raise UserError(f"clock {clock!r}: must be wall, cpu or auto")
    if on_cuda() and clock == "cpu":
        raise UserError("clock cpu: on a GPU the CPU only waits; use the wall clock")
    chosen: ClockName = "wall" if clock == "wall" or on_cuda() else "cpu"
    settings = engine_settings(settings, {} if on_cuda() else CPU_SETTINGS | {"num_gpu_blocks": 512})
    sample = []
    if trace is not None:
        frame = (bundled_trace() if trace == "bundled" else read_trace(trace)).frame
        sample = list(frame.select("prompt_tokens", "output_tokens").iter_rows())
    with progress_bar(console) as bar:
        bar.begin("starting the engine", 1)
        engine, name, vocabulary = open_engine(model, settings, dummy=dummy, seed=seed)
        config, _ = calibrate_engine(
            engine,
            name,
            chosen,
            vocabulary,
            sample,
            bar.reach,
            seed,
        )
    return config


def from_step_log(path: Path, engine: str | None, settings: Mapping[str, Any]) -> EngineConfig:
    """Fit the step time to a step log; the other settings are those of `engine`.

    Raises:
        UserError: no engine is named, or the log lacks something.
    """
    if engine is None:
        raise UserError(
            f"{path}: a step log does not say the engine's settings; name an engine that has them, a preset or a file"
        )
    config = load_engine(engine, dict(settings))
    steps = read_step_log(path)
    step_time = fit_steps(steps, f"fitted to the {steps.height} steps of {path.name}").step_time
    return config.model_copy(update={"step_time": step_time})


def from_recording(
    path: Path, settings: Mapping[str, Any], *, gpu: str | None, model: str | None, seed: int
) -> EngineConfig:
    """Fit through the simulator to half of a recording; the held-out error is that of the other half."""
    from parsim.validate.recordings.measured import read_measured
    from parsim.validate.report.comparison import Pair, errors
    from parsim.validate.report.recording_page import HEADLINE

    measured = read_measured(path)
    calibrated = calibrate(measured, seed=seed, card=find_card(measured, gpu, model), overrides=settings)
    assert calibrated.fit is not None
    rest = [
        unfitted(f, calibrated.fit.fitted) for f in (measured.requests, predict(measured, calibrated.config))
    ]
    error = dict(errors([Pair("fcfs", "", [rest[0]], [rest[1]])], seed).select("metric", "error").iter_rows())
    worst = max(HEADLINE, key=lambda name: abs(error.get(name, 0.0)))
    if abs(error[worst]) > FAILED:
        raise UserError(
            f"{path}: the fit failed: {worst} of the requests that it did not see is {error[worst]:+.0%} off, which no "
            "engine file should promise; check the engine's settings (num_gpu_blocks, max_num_seqs) in the recording"
        )
    step_time = calibrated.config.step_time.model_copy(update={"fit_error": error})
    return calibrated.config.model_copy(update={"step_time": step_time})

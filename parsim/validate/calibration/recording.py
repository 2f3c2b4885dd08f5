"""Calibrate on a part of a recording of a real engine, predict the rest, and compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from pydantic import ValidationError

from parsim.engine import EngineConfig, PresetSource, StepTime
from parsim.engine.presets.roofline import preset
from parsim.errors import UserError, first_problem, nearest
from parsim.validate.calibration.blocks import MANY_BLOCKS, infer_blocks, infer_blocks_alone
from parsim.validate.calibration.card import physics
from parsim.validate.calibration.fit import (
    TERMS,
    Array,
    Fit,
    first,
    fit_step_time,
    split,
    summed,
)
from parsim.validate.calibration.replay import load_of, replay
from parsim.validate.recordings.measured import Measured

FAILED = 0.1
"""A fit that is further off than this on what it did not see has failed: no engine file is made of it."""


@dataclass(frozen=True)
class Calibrated:
    """An engine fitted to a recording, and what the fit rests on.

    Attributes:
        config: the engine, step time included.
        fit: how the step time was found; None where it was given.
        roofline: the same engine with the datasheet's step time; None where card or model is not known.
        physics: seconds of each term with the datasheet fully used, by name; empty if not known.
        notes: what was assumed or inferred, in words.
    """

    config: EngineConfig
    fit: Fit | None
    roofline: EngineConfig | None
    physics: dict[str, float]
    notes: tuple[str, ...]


def engine_of(
    measured: Measured, card: PresetSource | None, overrides: Mapping[str, object]
) -> tuple[EngineConfig, bool, list[str]]:
    """The recorded engine with a step time still to be fitted, whether `num_gpu_blocks` was inferred, and notes."""
    notes = []
    known = {**measured.engine, **overrides}
    base = preset(card) if card else None
    if base is None:
        step = StepTime(base_s=0.01)
        fields: dict[str, object] = {
            "max_num_seqs": 256,
            "max_num_batched_tokens": 2048,
            "num_gpu_blocks": MANY_BLOCKS,
        }
    else:
        step = base.step_time
        fields = {"max_num_seqs": base.max_num_seqs, "max_num_batched_tokens": base.max_num_batched_tokens}
        fields["num_gpu_blocks"] = base.num_gpu_blocks
    inferred = "num_gpu_blocks" not in known
    longest = int((measured.requests["prompt_tokens"] + measured.requests["output_tokens"]).to_numpy().max())
    fields["max_model_len"] = max(131072, longest)
    assumed = [name for name in EngineConfig.model_fields if name not in known and name in _SETTINGS]
    if assumed:
        notes.append(f"not in the recording, so vLLM's defaults: {', '.join(assumed)}")
    name = measured.name
    about = {"name": name, "provenance": f"recording {name}", "step_time": step.model_dump()}
    try:
        config = EngineConfig.model_validate({**fields, **known, **about})
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][0])
        hint = (
            nearest(field, list(EngineConfig.model_fields)) if field not in EngineConfig.model_fields else ""
        )
        source = "changed field" if field in overrides else f"recording {name}"
        raise UserError(f"{source}: {first_problem(error)}{hint}") from error
    return config, inferred, notes


_SETTINGS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "async_scheduling",
    "scheduler_reserve_full_isl",
)


def calibrate(
    measured: Measured,
    *,
    share: float = 0.5,
    earliest: bool = False,
    seed: int = 0,
    card: PresetSource | None = None,
    overrides: Mapping[str, object] | None = None,
    progress: Callable[[str, float], None] = lambda stage, objective: None,
) -> Calibrated:
    """Fit a step-time model to `share` of the recorded requests: drawn evenly, or those that came first (`earliest`).

    Raises:
        UserError: too few requests, or a share outside (0, 1].
    """
    count = measured.requests.height
    if not 0 < share <= 1:
        raise UserError(f"fit share {share:g}: must be above 0 and at most 1")
    if count * share < 20:
        raise UserError(
            f"{measured.name}: {count} requests at a share of {share:g} are too few to fit (20 needed)"
        )
    config, inferred, notes = engine_of(measured, card, overrides or {})
    start = config.step_time if card else None
    fitted = first(count, share) if earliest else split(count, share, seed)
    if inferred:
        config, note = infer_blocks(measured, config, fitted, start, known_card=card is not None)
        notes.append(note)
    fit = fit_step_time(
        measured.requests, config, fitted=fitted, start=start, progress=progress, load=load_of(measured)
    )
    step = fit.step_time.model_copy(
        update={
            "provenance": f"fitted through the simulator to {'the first ' * earliest}{fitted.sum()} of {count} "
            f"requests of {measured.name}{'' if earliest else f' (seed {seed})'}, {fit.simulations} simulations"
        }
    )
    if fit.ready_s:
        notes.append(
            f"the first steps of the recorded engine were slow: its start is fitted, {fit.ready_s:.2f} s after the "
            "first arrival"
        )
    roofline = config if card else None
    return Calibrated(
        config.model_copy(update={"step_time": step}),
        fit,
        roofline,
        physics(card) if card else {},
        (*measured.notes, *notes),
    )


def carry(
    calibrated: Calibrated,
    measured: Measured,
    *,
    card: PresetSource | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Calibrated:
    """The engine of `measured` with the step times of another recording of the same machine.

    Settings are those of `measured` and `overrides`; nothing is fitted but `num_gpu_blocks`, where neither says it and
    the memory was short.
    """
    own, inferred, notes = engine_of(measured, card, overrides or {})
    step_time = calibrated.config.step_time
    config = own.model_copy(update={"step_time": step_time})
    if inferred:
        config, note = infer_blocks_alone(measured, config, known_card=card is not None)
        notes.append(note)
    notes.append(f"step times from {calibrated.config.name}: {step_time.provenance}")
    return Calibrated(
        config,
        None,
        config.model_copy(update={"step_time": own.step_time}) if card else None,
        physics(card) if card else {},
        (*measured.notes, *notes),
    )


def predict(measured: Measured, config: EngineConfig, ready_s: float = 0.0) -> pl.DataFrame:
    """The recorded load on an engine that starts at `ready_s`, in `Measured`'s columns."""
    return replay(load_of(measured), config, ready_s=ready_s)


def terms(calibrated: Calibrated) -> pl.DataFrame:
    """The fitted numbers beside physics: term, fitted, relative_error, physics, ratio (fitted / physics), roofline."""
    fit = calibrated.fit
    return pl.DataFrame(
        [
            {
                "term": name,
                "fitted": getattr(calibrated.config.step_time, name),
                "relative_error": fit.relative_error[name] if fit else None,
                "physics": calibrated.physics.get(name),
                "roofline": summed(calibrated.roofline.step_time)[name] if calibrated.roofline else None,
            }
            for name in TERMS
        ],
        schema_overrides=dict.fromkeys(("relative_error", "physics", "roofline"), pl.Float64),
    ).with_columns((pl.col("fitted") / pl.col("physics")).alias("ratio"))


def unfitted(frame: pl.DataFrame, fitted: Array) -> pl.DataFrame:
    """The rows that the fit did not see."""
    return frame.filter(pl.Series(np.logical_not(fitted)))

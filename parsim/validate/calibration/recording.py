"""Calibrate on a part of a recording of a real engine, predict the rest, and compare."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from pydantic import ValidationError

from parsim.engine import EngineConfig, PresetSource, StepTime
from parsim.engine.presets.cards import CARDS
from parsim.engine.presets.costs import costs_of
from parsim.engine.presets.models import bundled, model_of
from parsim.engine.presets.precision import precision_of
from parsim.engine.presets.roofline import preset
from parsim.errors import UserError, first_problem, nearest
from parsim.validate.calibration.fit import (
    TERMS,
    Array,
    Fit,
    fit_blocks,
    fit_step_time,
    rough_step_time,
    split,
)
from parsim.validate.calibration.replay import Load, peak_blocks, replay
from parsim.validate.recordings.measured import Measured

MANY_BLOCKS = 1 << 20
"""A pool that never runs dry, to see how much a load needs."""

_WANTED = 1.1
"""A load that would hold so many times what it held was short of memory: less is the model's error."""


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


def find_card(measured: Measured, gpu: str | None = None, model: str | None = None) -> PresetSource | None:
    """The model and card that the recording speaks of; None if it names none that is known.

    Raises:
        UserError: `gpu` or `model` is given and no preset has that name.
    """
    for given, known, what in ((gpu, CARDS, "GPU"), (model, bundled(), "model")):
        if given is not None and given not in known:
            raise UserError(f"{what} {given!r}: no such preset (choose from {', '.join(known)})")
    found_model = model or _longest(measured.model, bundled())
    found_gpu = gpu or _longest(measured.gpu, CARDS)
    return PresetSource(model=found_model, gpu=found_gpu) if found_model and found_gpu else None


def _longest(text: str, names: Mapping[str, object]) -> str | None:
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    hits = [name for name in names if re.sub(r"[^a-z0-9]", "", name) in plain]
    return max(hits, key=len, default=None)


def physics(card: PresetSource) -> dict[str, float]:
    """Seconds of each term if the card did what its datasheet says: weights or KV bytes / bandwidth, FLOPs / FLOP/s."""
    model = model_of(card.model)
    precision = precision_of(model, card.dtype, card.kv_cache_dtype)
    costs = costs_of(model, precision, CARDS[card.gpu], card.tp)
    return {
        "base_s": costs.weights_s + costs.experts_s,
        "prefill_token_s": costs.token_s,
        "decode_seq_s": costs.token_s + costs.sampled_s,
        "kv_token_s": costs.kv_token_s,
        "attention_pair_s": costs.pair_s,
    }


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
    seed: int = 0,
    card: PresetSource | None = None,
    overrides: Mapping[str, object] | None = None,
    progress: Callable[[str, float], None] = lambda stage, objective: None,
) -> Calibrated:
    """Fit a step-time model to `share` of the recorded requests.

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
    fitted = split(count, share, seed)
    if inferred:
        config, note = _infer_blocks(measured, config, fitted, start, known_card=card is not None)
        notes.append(note)
    fit = fit_step_time(measured.requests, config, fitted=fitted, start=start, progress=progress)
    step = fit.step_time.model_copy(
        update={
            "provenance": f"fitted through the simulator to {fitted.sum()} of {count} requests of {measured.name} "
            f"(seed {seed}), {fit.simulations} simulations"
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


def _infer_blocks(
    measured: Measured, config: EngineConfig, fitted: Array, start: StepTime | None, known_card: bool
) -> tuple[EngineConfig, str]:
    """`num_gpu_blocks` where the recording does not say it: the card's memory if it never binds, else a fit.

    It binds if an engine with all the memory it wants, its step time fitted, would hold more than the recorded one.
    """
    load = Load.of(measured.requests)
    roomy = config.model_copy(update={"num_gpu_blocks": MANY_BLOCKS})
    step_time = rough_step_time(measured.requests, roomy, fitted=fitted, start=start)
    wanted = replay(load, roomy.model_copy(update={"step_time": step_time}))
    peak = peak_blocks(load, wanted, config.block_size)
    if _scheduled(measured):
        held = peak_blocks(load, measured.requests, config.block_size)
        binds = peak > _WANTED * held or held > config.usable_blocks
    else:
        binds = not known_card or peak > config.usable_blocks
    blocks = fit_blocks(measured.requests, config, fitted=fitted, start=start, top=peak) if binds else peak
    if blocks >= peak:
        source = "the card's memory less weights" if known_card else "a pool that never fills"
        return config, (
            f"num_gpu_blocks is not in the recording: {config.num_gpu_blocks:,} from {source}; the requests want at "
            f"most {peak:,} at once, so that any number above that gives the same prediction"
        )
    return config.model_copy(update={"num_gpu_blocks": blocks}), (
        f"num_gpu_blocks is not in the recording and memory was short: {blocks:,} fitted with the step time "
        "(sizes tried in geometric progression, ever finer)"
    )


def _scheduled(measured: Measured) -> bool:
    return measured.requests["first_scheduled_s"].null_count() == 0


def predict(measured: Measured, config: EngineConfig, ready_s: float = 0.0) -> pl.DataFrame:
    """The recorded load on an engine that starts at `ready_s`, in `Measured`'s columns."""
    return replay(Load.of(measured.requests), config, ready_s=ready_s)


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
                "roofline": getattr(calibrated.roofline.step_time, name) if calibrated.roofline else None,
            }
            for name in TERMS
        ],
        schema_overrides=dict.fromkeys(("relative_error", "physics", "roofline"), pl.Float64),
    ).with_columns((pl.col("fitted") / pl.col("physics")).alias("ratio"))


def unfitted(frame: pl.DataFrame, fitted: Array) -> pl.DataFrame:
    """The rows that the fit did not see."""
    return frame.filter(pl.Series(np.logical_not(fitted)))

"""`num_gpu_blocks` of a recorded engine, where the recording does not say it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from parsim.engine import EngineConfig, StepTime
from parsim.validate.calibration.fit import Array, Problem, rough_step_time
from parsim.validate.calibration.replay import load_of, peak_blocks, replay
from parsim.validate.recordings.measured import Measured

MANY_BLOCKS = 1 << 20
"""A pool that never runs dry, to see how much a load needs."""

_WANTED = 1.1
"""A load that would hold so many times what it held was short of memory: less is the model's error."""

_CLEARLY = 0.9
"""Scarce blocks must bring the objective below so much of what it is with plenty, or they were not scarce."""

_TRIED = 7
"""Sizes of one round, in geometric progression between the neighbours of the best of the round before."""

_ROUNDS = 4
"""Rounds in which the step time is fitted with each size."""

_ROUNDS_ALONE = 12
"""Most rounds with a given step time; they end when neighbouring sizes are tried."""


def infer_blocks(
    measured: Measured, config: EngineConfig, fitted: Array, start: StepTime | None, known_card: bool
) -> tuple[EngineConfig, str]:
    """The engine with a number of blocks, and in words where it comes from, the step time still to be fitted.

    The card's memory if it never binds, else a fit. It binds if an engine with all the memory it wants, its step time
    fitted, would hold more than the recorded one.
    """
    roomy = config.model_copy(update={"num_gpu_blocks": MANY_BLOCKS})
    step_time = rough_step_time(load_of(measured), measured.requests, roomy, fitted=fitted, start=start)
    peak = _peak(measured, roomy.model_copy(update={"step_time": step_time}))
    if not _binds(measured, config, peak, known_card):
        return _free(config, peak, known_card)

    def short_fit(size: int, begin: Array | None) -> tuple[float, Array]:
        sized = config.model_copy(update={"num_gpu_blocks": size})
        problem = Problem(load_of(measured), measured.requests, sized, fitted, start)
        point = problem.least_squares(begin)
        return problem.objective(point), point

    blocks = _search(short_fit, _least(measured, config), peak, _ROUNDS)
    return _bound(config, blocks, peak, known_card, "with the step time")


def infer_blocks_alone(
    measured: Measured, config: EngineConfig, known_card: bool
) -> tuple[EngineConfig, str]:
    """The same with the step time given: nothing else is fitted."""
    load = load_of(measured)
    load = load_of(measured)
    roomy = config.model_copy(update={"num_gpu_blocks": MANY_BLOCKS})
    peak = _peak(measured, roomy)
    everyone = np.ones(measured.requests.height, dtype=bool)
    problem = Problem(load_of(measured), measured.requests, config, everyone, config.step_time)

    def off(size: int) -> float:
        return problem.distance(replay(load, config.model_copy(update={"num_gpu_blocks": size})))

    blocks = _search(lambda size, _: (off(size), everyone), _least(measured, config), peak, _ROUNDS_ALONE)
    if off(blocks) > _CLEARLY * off(MANY_BLOCKS):
        return _free(config, peak, known_card)
    return _bound(config, blocks, peak, known_card, "alone, to the step times given")


def _peak(measured: Measured, roomy: EngineConfig) -> int:
    load = load_of(measured)
    return peak_blocks(load, replay(load, roomy), roomy.block_size)


def _binds(measured: Measured, config: EngineConfig, peak: int, known_card: bool) -> bool:
    """Whether memory was short in the recording; `peak`: what an engine with all it wants would hold."""
    if measured.requests["first_scheduled_s"].null_count() == 0:
        held = peak_blocks(load_of(measured), measured.requests, config.block_size)
        return peak > _WANTED * held or held > config.usable_blocks
    return not known_card or peak > config.usable_blocks


def _least(measured: Measured, config: EngineConfig) -> int:
    tokens = (measured.requests["prompt_tokens"] + measured.requests["output_tokens"]).to_numpy()
    return -(-int(tokens.max()) // config.block_size) + 2


def _search(
    objective: Callable[[int, Array | None], tuple[float, Array]], least: int, top: int, rounds: int
) -> int:
    """The size of the least objective, in ever finer rounds; each begins at the point that the best so far ended at."""
    low, high = least, max(top, least + 1)
    tried: dict[int, tuple[float, Array]] = {}
    begin: Array | None = None
    for _ in range(rounds):
        sizes = [int(size) for size in np.unique(np.geomspace(low, high, _TRIED).round())]
        for size in sizes:
            if size not in tried:
                tried[size] = objective(size, begin)
        best = min(range(len(sizes)), key=lambda i: tried[sizes[i]][0])
        low, high = sizes[max(best - 1, 0)], sizes[min(best + 1, len(sizes) - 1)]
        begin = tried[sizes[best]][1]
        if high - low <= 2:
            break
    return min(tried, key=lambda size: tried[size][0])


def _free(config: EngineConfig, peak: int, known_card: bool) -> tuple[EngineConfig, str]:
    source = "the card's memory less weights" if known_card else "a pool that never fills"
    return _said(
        config,
        f"num_gpu_blocks is not in the recording: {config.num_gpu_blocks:,} from {source}; the requests want at "
        f"most {peak:,} at once, so that any number above that gives the same prediction",
    )


def _bound(
    config: EngineConfig, blocks: int, peak: int, known_card: bool, how: str
) -> tuple[EngineConfig, str]:
    if blocks >= peak:
        return _free(config, peak, known_card)
    return _said(
        config.model_copy(update={"num_gpu_blocks": blocks}),
        f"num_gpu_blocks is not in the recording and memory was short: {blocks:,} fitted {how} "
        "(sizes tried in geometric progression, ever finer)",
    )


def _said(config: EngineConfig, note: str) -> tuple[EngineConfig, str]:
    """The note goes into the engine itself: who reads its file alone must know."""
    return config.model_copy(update={"provenance": f"{config.provenance}; {note}"}), note

"""Scores for every prompt of a trace, as a column that a policy can sort by."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from parsim.errors import UserError
from parsim.predictor.scoring.predictor import Predictor
from parsim.traces import Trace

CHUNK = 2048
"""Prompts between two updates of the progress bar."""


@dataclass(frozen=True)
class Scored:
    """A trace with a new column, and what it took.

    Attributes:
        trace: the trace with `score.NAME`; its metadata say by which predictor.
        prompts: prompts scored, and how many of them are distinct.
        distinct: see above.
        empty: prompts that are empty or only white space; scored like any other.
        cpu_s, wall_s: seconds spent scoring, loading aside.
    """

    trace: Trace
    prompts: int
    distinct: int
    empty: int
    cpu_s: float
    wall_s: float


def score_trace(
    trace: Trace, predictor: Predictor, *, workers: int | None = None, progress: bool = False
) -> Scored:
    """Add `score.NAME` to a trace.

    Args:
        trace: with a column `prompt`.
        predictor: as loaded.
        workers: threads, each with a batch of its own; default: the processor's cores.
        progress: show a progress bar.

    Raises:
        UserError: the trace, or one of its requests, has no prompt text, or a score is no finite number.
    """
    if not trace.has_prompts:
        raise UserError(
            f"trace {trace.name}: has no column 'prompt', so there is no text to score; join it"
            " with a corpus that has some (`parsim traces join`), or emulate a predictor"
            " (`parsim simulate --emulate pars=TAU`)"
        )
    without = trace.frame.filter(pl.col("prompt").is_null())
    if len(without):
        raise UserError(
            f"trace {trace.name}: request '{without['request_id'][0]}' has no prompt ({len(without):,} in all), so that"
            " nothing can be scored there, and a trace has a score for every request or for none; delete such rows"
        )
    texts = trace.frame["prompt"].to_list()
    cpu, wall = time.process_time(), time.perf_counter()
    scores = np.concatenate([np.empty(0), *_chunks(predictor, texts, workers, progress)])
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    column = f"score.{predictor.name}"
    values = [round(score, 5) for score in scores.tolist()]
    frame = trace.frame.with_columns(pl.Series(column, values, dtype=pl.Float64))
    metadata = {**trace.metadata, column: describe(predictor)}
    return Scored(
        trace=Trace(frame, metadata),
        prompts=len(texts),
        distinct=len(set(texts)),
        empty=sum(not text.strip() for text in texts),
        cpu_s=cpu,
        wall_s=wall,
    )


def describe(predictor: Predictor) -> str:
    """One line on the origin of a score, for a trace's metadata."""
    card = predictor.card
    tau = card.results["test_tau_b"].get("value") if "test_tau_b" in card.results else None
    reached = f", held-out tau_b {tau:.3f}" if tau is not None else ""
    source = card.data.get("source", "?")
    return f"{card.recipe.objective} on {card.recipe.encoder}, trained on {source}{reached}"


def score_latency(
    predictor: Predictor, prompts: Sequence[str], sizes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64)
) -> pl.DataFrame:
    """What scoring takes by batch size, tokenising included: columns batch (prompts), batch_ms, prompt_ms (a batch's
    time by its prompts) and prompt_cpu_ms; medians.

    The batches are the prompts in turn, from the first again after the last; each size is measured 5 times after one
    run to warm up.
    """
    rows = []
    for size in sizes:
        walls, cpus = [], []
        for turn in range(6):
            batch = [prompts[row % len(prompts)] for row in range(turn * size, (turn + 1) * size)]
            cpu, wall = time.process_time(), time.perf_counter()
            predictor.score_each(batch)
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
        batch_ms, cpu_ms = (1000 * float(np.median(seconds[1:])) for seconds in (walls, cpus))
        rows.append((size, batch_ms, batch_ms / size, cpu_ms / size))
    return pl.DataFrame(rows, schema=["batch", "batch_ms", "prompt_ms", "prompt_cpu_ms"], orient="row")


def _chunks(
    predictor: Predictor, texts: list[str], workers: int | None, progress: bool
) -> Iterator[npt.NDArray[np.float64]]:
    import torch
    from rich.console import Console

    from parsim.progress import progress_bar

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with progress_bar(Console(stderr=True), show=progress, transient=False) as bar:
            bar.begin("scoring", len(texts))
            for start in range(0, len(texts), CHUNK):
                part = texts[start : start + CHUNK]
                yield predictor.score(part, workers or os.cpu_count() or 1)
                bar.advance(len(part))
    finally:
        torch.set_num_threads(threads)

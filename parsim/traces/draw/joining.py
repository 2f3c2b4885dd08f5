"""Join: rows of a corpus (lengths, prompts, scores) under arrivals from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from parsim.errors import UserError
from parsim.seeds import generator
from parsim.traces.corpus import Corpus
from parsim.traces.draw.arrivals import HELP, Arrivals, parse_arrivals
from parsim.traces.trace import OPTIONAL, REQUIRED, SCORE_PREFIX, Trace


def join(
    corpus: Corpus | pl.DataFrame | str | Path,
    arrivals: Arrivals | Trace | str | Path,
    seed: int = 0,
    n: int | None = None,
    *,
    model: str | None = None,
    replace: bool | None = None,
    metadata: dict[str, str] | None = None,
) -> Trace:
    """Draw `n` rows of a corpus and let them arrive by a process, or at a recorded trace's times.

    Args:
        corpus: a corpus, a file that holds one, or a frame with `prompt_tokens` and `output_tokens` and
            optionally `request_id`, `prompt`, `prefix_hashes`, `session_id`, `client_id`, `score.NAME`; an
            `arrival_s` is ignored.
        arrivals: a process or its text (`"poisson(rate=10)"`), or a trace (or its file) whose arrival times are
            taken as they are.
        seed: of the rows' order and of the process; same seed, same trace.
        n: requests; default: all rows of the corpus, or as many as the recorded arrivals if those are fewer.
        model: whose lengths, where a file has several models'.
        replace: draw rows with replacement; default: only if `n` exceeds the corpus. A repeated row's
            `request_id` gets `~2`, `~3`, ...
        metadata: provenance; default: the corpus's own.

    Raises:
        UserError: a file or text is not understood, a column is missing, or there are fewer arrivals or rows
            than asked for.
    """
    if not isinstance(corpus, Corpus | pl.DataFrame | str | Path):
        raise UserError(f"corpus: {corpus!r} is no file; name a trace or a prompt corpus")
    if not isinstance(arrivals, Arrivals | Trace | str | Path):
        raise UserError(f"arrivals: {arrivals!r} is no trace file or arrival process; {HELP}")
    if not isinstance(n, int | None):
        raise UserError(f"n: {n!r} is no whole number")
    corpus, metadata = _rows(corpus, model, metadata)
    arrivals = _when(arrivals)
    missing = [column for column in ("prompt_tokens", "output_tokens") if column not in corpus.columns]
    if missing:
        raise UserError(f"corpus has no column {' and '.join(missing)}; found: {', '.join(corpus.columns)}")
    recorded = isinstance(arrivals, Trace)
    n = (
        n
        if n is not None
        else min(corpus.height, len(arrivals) if isinstance(arrivals, Trace) else corpus.height)
    )
    if n < 1:
        raise UserError(f"asked for {n} requests, must be >= 1")
    replace = n > corpus.height if replace is None else replace
    if not replace and n > corpus.height:
        raise UserError(f"asked for {n:,} requests of {corpus.height:,} rows without repeats; ask for fewer")
    times = _times(arrivals, n, seed)
    rng = generator(seed, 1)  # apart from the stream that the arrivals use
    rows = rng.choice(corpus.height, n, replace=replace)
    if "request_id" not in corpus.columns:
        corpus = corpus.with_row_index("request_id")
    keep = [c for c in (*REQUIRED, *OPTIONAL) if c in corpus.columns and c != "arrival_s"]
    scores = [c for c in corpus.columns if c.startswith(SCORE_PREFIX)]
    frame = corpus.select(*keep, *scores).with_columns(pl.col("request_id").cast(pl.String))[rows]
    frame = frame.with_columns(_unique_ids() if replace else pl.col("request_id"), arrival_s=pl.Series(times))
    recipe = {
        "arrivals": arrivals.name if isinstance(arrivals, Trace) else str(arrivals),
        "seed": seed,
        "n": n,
    }
    carried = {key: value for key, value in metadata.items() if key != "recipe"}
    return Trace(
        frame.select(*(c for c in (*REQUIRED, *OPTIONAL) if c in frame.columns), *scores),
        {
            "name": "joined",
            **carried,
            "recipe": json.dumps({"kind": "join", "recorded_arrivals": recorded, **recipe}),
        },
    )


def _rows(
    corpus: Corpus | pl.DataFrame | str | Path, model: str | None, metadata: dict[str, str] | None
) -> tuple[pl.DataFrame, dict[str, str]]:
    if isinstance(corpus, str | Path):
        from parsim.traces.readers import read_corpus

        corpus = read_corpus(corpus, model)
    if isinstance(corpus, Corpus):
        return corpus.frame, corpus.metadata if metadata is None else metadata
    return corpus, metadata or {}


def _when(arrivals: Arrivals | Trace | str | Path) -> Arrivals | Trace:
    """A text that names a file is a recorded trace, another a process."""
    if not isinstance(arrivals, str | Path):
        return arrivals
    if Path(arrivals).exists():
        from parsim.traces.readers import read_trace

        return read_trace(arrivals)
    return parse_arrivals(str(arrivals))


def _unique_ids() -> pl.Expr:
    """`request_id` with `~2`, `~3`, ... on a row's second and later draws, whatever mark it had before."""
    own = pl.col("request_id").str.replace(r"~\d+$", "")
    count = pl.int_range(pl.len()).over(own) + 1
    return pl.when(count > 1).then(pl.format("{}~{}", own, count)).otherwise(own).alias("request_id")


def _times(arrivals: Arrivals | Trace, n: int, seed: int) -> np.ndarray:
    if isinstance(arrivals, Arrivals):
        return arrivals.draw(n, seed)
    if n > len(arrivals):
        raise UserError(
            f"asked for {n:,} requests, but {arrivals.name} has {len(arrivals):,} arrivals; ask for fewer"
        )
    return arrivals.frame["arrival_s"].head(n).to_numpy()

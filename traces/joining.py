"""Join: rows of a corpus (lengths, prompts, scores) under arrivals from elsewhere."""

from __future__ import annotations

import json

import numpy as np
import polars as pl

from traces.arrivals import Arrivals
from traces.errors import UserError
from traces.trace import OPTIONAL, REQUIRED, SCORE_PREFIX, Trace


def join(
    corpus: pl.DataFrame,
    arrivals: Arrivals | Trace,
    seed: int = 0,
    n: int | None = None,
    *,
    replace: bool | None = None,
    metadata: dict[str, str] | None = None,
) -> Trace:
    """Draw `n` rows of a corpus and let them arrive by a process, or at a recorded trace's times.

    Args:
        corpus: `prompt_tokens` and `output_tokens`, and optionally `request_id`, `prompt`, `prefix_hashes`,
            `session_id`, `client_id`, `score.NAME`; an `arrival_s` is ignored.
        arrivals: a process, or a trace whose arrival times are taken as they are.
        seed: of the rows' order and of the process; same seed, same trace.
        n: requests; default: all rows of the corpus, or as many as the recorded arrivals if those are fewer.
        replace: draw rows with replacement; default: only if `n` exceeds the corpus. A repeated row's
            `request_id` gets `~2`, `~3`, ...
        metadata: provenance of the corpus.

    Raises:
        UserError: a column is missing, or there are fewer arrivals or rows than asked for.
    """
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
    rng = np.random.default_rng([seed, 1])  # apart from the stream that the arrivals use
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
    carried = {key: value for key, value in (metadata or {}).items() if key != "recipe"}
    return Trace(
        frame.select(*(c for c in (*REQUIRED, *OPTIONAL) if c in frame.columns), *scores),
        {
            "name": "joined",
            **carried,
            "recipe": json.dumps({"kind": "join", "recorded_arrivals": recorded, **recipe}),
        },
    )


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

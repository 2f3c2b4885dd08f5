"""More traffic like a recorded trace: its requests drawn again in blocks, with the gaps between them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from parsim.seeds import generator
from parsim.stats import block_length
from parsim.traces.trace import Trace

PARTS = 8
"""Parts of a recorded trace that are drawn from apart, so that their spread tells the sampling error of the whole."""
BLOCKS = 6
"""Blocks in a part, at most."""


def resample(trace: Trace, seed: int, requests: int | None = None, part: int | None = None) -> Trace:
    """`requests` requests (default: as many as the trace has) in blocks of consecutive ones, drawn with replacement.

    A block bootstrap of the rows and of the gaps before them: what comes close together in the trace (a burst, a
    client's requests, the same lengths) stays together. Without `part` any block may be drawn (circular, Politis &
    Romano 1992, so that the mean rate is that of the trace); with it only those of one of `PARTS` parts, which share
    no block and each have theirs from all over the trace. A block that is drawn twice is other traffic the second
    time: its prefixes and sessions are shared within the copy only.
    """
    frame, count = trace.frame, len(trace)
    wanted = count if requests is None else requests
    rows = _blocks(count, wanted, seed) if part is None else _part(count, wanted, seed, part)
    arrivals = frame["arrival_s"].to_numpy()
    gaps = np.diff(arrivals, prepend=arrivals[0] - (arrivals[-1] - arrivals[0]) / max(count - 1, 1))
    drawn = gaps[rows]
    copy = _copies(rows)
    columns = [
        pl.Series("arrival_s", np.cumsum(drawn) - drawn[0]),
        pl.Series("request_id", [f"r{i}" for i in range(wanted)]),
    ]
    result = frame[rows].with_columns(columns)
    if trace.has_prefix_hashes:
        keys = generator(seed, 1).integers(0, 2**62, copy.max() + 1)
        keys[0] = 0
        own = pl.DataFrame({"row": np.arange(wanted), "key": keys[copy]}).with_columns(
            result["prefix_hashes"]
        )
        ids = (
            own.explode("prefix_hashes", empty_as_null=True)  # else a prompt without a full block is lost
            .with_columns(pl.col("prefix_hashes") ^ pl.col("key"))
            .group_by("row", maintain_order=True)
            .agg(pl.col("prefix_hashes").drop_nulls())
        )
        result = result.with_columns(ids["prefix_hashes"])
    if "session_id" in result.columns:
        told = pl.format("{}#{}", pl.col("session_id"), pl.Series("copy", copy))
        result = result.with_columns(session_id=told)
    metadata = trace.noting(f"{wanted:,} requests drawn again in blocks, seed {seed}")
    return Trace(result, {key: value for key, value in metadata.items() if key != "recipe"})


def _blocks(count: int, wanted: int, seed: int) -> npt.NDArray[np.int64]:
    length = block_length(count)
    starts = generator(seed).integers(0, count, size=-(-wanted // length))
    return ((starts[:, None] + np.arange(length)) % count).ravel()[:wanted]


def _part(count: int, wanted: int, seed: int, part: int) -> npt.NDArray[np.int64]:
    length = max(1, count // (PARTS * BLOCKS))
    starts = np.arange(0, count, length)
    own = generator(0, 2).permutation(starts)[part % PARTS :: PARTS]
    chosen = generator(seed, 3).choice(own if len(own) else starts, size=-(-wanted // length))
    rows = chosen[:, None] + np.arange(length)
    return np.minimum(rows, count - 1).ravel()[:wanted]


def _copies(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How often each row has come before."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    first = np.searchsorted(ordered, ordered, side="left")
    copies = np.empty(len(rows), dtype=np.int64)
    copies[order] = np.arange(len(rows)) - first
    return copies

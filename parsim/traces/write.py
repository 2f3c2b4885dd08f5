"""A trace onto disk."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from parsim.errors import UserError
from parsim.files import check_target, replacing
from parsim.traces.trace import Trace

ENDINGS = (".parquet", ".csv", ".jsonl")


def check_trace_target(path: Path) -> None:
    """Make sure that a trace can be written at `path`, before the work whose result it takes.

    Raises:
        UserError: another ending than `ENDINGS`, or a place that cannot be written.
    """
    if path.suffix not in ENDINGS:
        raise UserError(
            f"{path}: cannot write {path.suffix or 'a file without an ending'}; use {', '.join(ENDINGS)}"
        )
    check_target(path)


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write the trace whole or not at all; the ending picks the format: .parquet, .csv or .jsonl.

    Parquet carries the metadata. CSV and JSONL carry rows only; where there are prefix hashes a column
    `hash_block_size` goes with them.

    Raises:
        UserError: another ending, or a place that cannot be written.
    """
    path = Path(path)
    check_trace_target(path)
    frame = trace.frame
    if trace.has_prefix_hashes and path.suffix != ".parquet":
        frame = frame.with_columns(hash_block_size=pl.lit(trace.hash_block_size))
    if trace.has_prefix_hashes and path.suffix == ".csv":
        listed = pl.col("prefix_hashes").cast(pl.List(pl.String)).list.join(",")
        frame = frame.with_columns(pl.format("[{}]", listed).alias("prefix_hashes"))
    with replacing(path) as temporary:
        if path.suffix == ".parquet":
            frame.write_parquet(temporary, metadata=trace.metadata)
        elif path.suffix == ".csv":
            frame.write_csv(temporary)
        else:
            frame.write_ndjson(temporary)

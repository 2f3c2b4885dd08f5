"""How fast a 1,000,000-row trace is read: `python tests/benchmarks/bench_traces.py [ROWS]`.

Prints seconds for `read_trace` on Azure CSV, Mooncake JSONL and Parquet, and the ratio to a `csv.DictReader` loop that
does the same to the CSV (parse the time, two integers, checks).
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from parsim.traces import Arrivals, Lognormal, Trace, read_trace, synthesize, write_trace


def azure_csv(trace: Trace, path: Path) -> None:
    start = datetime(2024, 5, 10)
    stamps = start + pl.Series(trace.frame["arrival_s"] * 1e6).cast(pl.Int64).cast(pl.Duration("us"))
    trace.frame.select(
        TIMESTAMP=stamps.dt.to_string("%Y-%m-%d %H:%M:%S%.6f+00:00"),
        ContextTokens="prompt_tokens",
        GeneratedTokens="output_tokens",
    ).write_csv(path)


def mooncake_jsonl(trace: Trace, path: Path) -> None:
    rows = zip(*(trace.frame[name] for name in ("arrival_s", "prompt_tokens", "output_tokens")), strict=True)
    with path.open("w") as file:
        for at, prompt, output in rows:
            hashes = list(range(-(-prompt // 512)))
            row = {
                "timestamp": int(at * 1000),
                "input_length": prompt,
                "output_length": output,
                "hash_ids": hashes,
            }
            file.write(json.dumps(row) + "\n")


def row_by_row(path: Path) -> int:
    """The loop that `read_trace` is compared with."""
    rows, first = [], None
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            at = datetime.fromisoformat(row["TIMESTAMP"])
            first = first or at
            prompt, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
            if prompt < 1 or output < 1:
                raise ValueError(row)
            rows.append(((at - first) / timedelta(seconds=1), prompt, output))
    return len(rows)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main(rows: int) -> None:
    trace = synthesize(Arrivals("poisson", {"rate": 10.0}), Lognormal(1155, 1.0, 211, 0.8), rows, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        csv_path, jsonl_path, parquet_path = (
            Path(folder) / f"t.{ending}" for ending in ("csv", "jsonl", "parquet")
        )
        azure_csv(trace, csv_path)
        mooncake_jsonl(trace, jsonl_path)
        write_trace(trace, parquet_path)
        columnar = min(seconds(lambda: read_trace(csv_path)) for _ in range(3))
        print(f"rows                       {rows:,}")
        print(f"Azure CSV, read_trace      {columnar:.2f} s")
        print(
            f"Mooncake JSONL, read_trace {min(seconds(lambda: read_trace(jsonl_path)) for _ in range(3)):.2f} s"
        )
        print(
            f"Parquet, read_trace        {min(seconds(lambda: read_trace(parquet_path)) for _ in range(3)):.2f} s"
        )
        loop = seconds(lambda: row_by_row(csv_path))
        print(f"Azure CSV, DictReader loop {loop:.2f} s")
        print(f"ratio, loop / read_trace   {loop / columnar:.1f}")
        assert np.isclose(
            read_trace(csv_path).frame["arrival_s"][-1], trace.frame["arrival_s"][-1], atol=1e-5
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)

"""The schema itself (`parsim.traces.trace`) as CSV, JSONL or Parquet.

`request_id` may be left out (rows are numbered). CSV and JSONL carry no metadata: hashes come with a column
`hash_block_size`, and in CSV a list is written as JSON (`[1,2]`). Columns outside the schema are left out and
noted.
"""

from __future__ import annotations

import polars as pl

from parsim.errors import UserError, closest
from parsim.traces.checks import Draft
from parsim.traces.readers.format import Format
from parsim.traces.readers.source import Source
from parsim.traces.trace import OPTIONAL, REQUIRED, SCORE_PREFIX

KNOWN = (*REQUIRED, *OPTIONAL, "hash_block_size")


def read(source: Source) -> Draft:
    columns = [column for column in source.columns if column in KNOWN or column.startswith(SCORE_PREFIX)]
    unknown = [column for column in source.columns if column not in columns]
    frame, metadata = _table(source, columns), {}
    if source.kind == "parquet":
        metadata = source.parquet_metadata()
    if "prefix_hashes" in columns:
        frame, metadata["hash_block_size"] = _hashes(frame, metadata.get("hash_block_size"), source)
    notes = [f"column left out: {_with_nearest(column, columns)}" for column in unknown]
    return Draft(frame, metadata=metadata, notes=notes, starts_at_zero=True)


def _table(source: Source, columns: list[str]) -> pl.DataFrame:
    if source.kind == "parquet":
        return source.parquet(columns)
    if source.kind == "csv":
        return source.csv(columns)
    schema = {
        column: OPTIONAL["prefix_hashes"] if column == "prefix_hashes" else pl.String() for column in columns
    }
    return source.jsonl(schema)


def _hashes(frame: pl.DataFrame, size: str | None, source: Source) -> tuple[pl.DataFrame, str]:
    """The frame with `prefix_hashes` as lists and without `hash_block_size`; and the size, as text."""
    kind = frame.schema["prefix_hashes"]
    if isinstance(kind, pl.List):
        frame = frame.with_columns(pl.col("prefix_hashes").cast(OPTIONAL["prefix_hashes"], strict=False))
    elif kind != pl.String:
        raise UserError(f"{source.path}: prefix_hashes is a column of {kind}; expected lists of integers")
    else:
        parsed = (
            pl.col("prefix_hashes")
            .str.strip_chars("[] ")
            .str.split(",")
            .list.eval(
                pl.element()
                .str.strip_chars()
                .filter(pl.element().str.strip_chars() != "")
                .cast(pl.Int64, strict=False)
            )
        )
        frame = frame.with_columns(parsed.alias("prefix_hashes"))
    if "hash_block_size" in frame.columns:
        sizes = frame["hash_block_size"].cast(pl.String).unique().to_list()
        if len(sizes) != 1:
            raise UserError(
                f"{source.path}: hash_block_size takes {len(sizes)} values; give every row the same one"
            )
        frame, size = frame.drop("hash_block_size"), sizes[0]
    if size is None or not size.isdigit() or int(size) < 1:
        found = "is missing" if size is None else f"is {size}"
        raise UserError(
            f"{source.path}: has prefix_hashes but hash_block_size {found}; add it: the tokens per hash"
        )
    return frame, size


def _with_nearest(column: str, columns: list[str]) -> str:
    near = closest(column, [known for known in KNOWN if known not in columns])
    return f"{column} (meant {near}?)" if near else column


FORMAT = Format(
    "plain",
    "this project's schema as CSV, JSONL or Parquet",
    ("csv", "jsonl", "parquet"),
    ("arrival_s", "prompt_tokens", "output_tokens"),
    read,
)

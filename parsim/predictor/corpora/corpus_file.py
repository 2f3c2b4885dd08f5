"""A JSONL or Parquet file of prompts: as a frame, and row by row with the place of each."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from parsim.errors import UserError
from parsim.json_lines import json_lines

_PACKED = (b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x9c", b"\x78\xda")
"""First bytes of zstd and zlib files: polars unpacks them, the standard library of Python 3.11 not both."""


def read_table(file: Path) -> pl.DataFrame:
    """A JSONL or Parquet file as a frame.

    Raises:
        UserError: the file is missing, a folder, empty or broken (with the line).
    """
    head = _head(file)
    try:
        if head.startswith(b"PAR1"):
            return pl.read_parquet(file, glob=False)
        # read_ndjson takes *, ? and [] in a name for a pattern, and stops at a byte order mark
        if head.startswith(codecs.BOM_UTF8) or set(file.name) & set("*?["):
            return pl.read_ndjson(file.read_bytes().removeprefix(codecs.BOM_UTF8), infer_schema_length=None)
        return pl.read_ndjson(file, infer_schema_length=None)
    except (
        pl.exceptions.PolarsError,
        OSError,
    ) as error:  # what polars unpacks may be an OSError without a file
        reason = str(error).splitlines()[0][:120]
        if head.startswith(b"PAR1"):
            raise UserError(f"{file}: not whole Parquet ({reason}); fetch or write it again") from error
        if not head.startswith(_PACKED):
            for _ in _lines(file):  # stops at the line that is broken
                pass
        raise UserError(f"{file}: not readable JSONL ({reason}); give every column one type") from error


def read_rows(file: Path, columns: Collection[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row with its place, "line 7" of JSONL or "row 7" of Parquet; of Parquet only the named columns, if any are.

    JSONL is parsed as it stands: a frame would have text of every column in which one row is text.

    Raises:
        UserError: see `read_table`.
    """
    head = _head(file)
    if head.startswith((b"PAR1", *_PACKED)):
        yield from rows_of(read_table(file), columns)
    else:
        yield from _lines(file)


def rows_of(
    frame: pl.DataFrame, columns: Collection[str] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row of a frame with its place, "row 7"; only the named columns, if any are."""
    if columns is not None:
        frame = frame.select(name for name in frame.columns if name in columns)
    for number, record in enumerate(frame.iter_rows(named=True), start=1):
        yield f"row {number}", record


def _head(file: Path) -> bytes:
    if file.is_dir() or not file.exists():
        raise UserError(
            f"{file}: {'is a folder' if file.is_dir() else 'no such file'}; expected JSONL or Parquet"
        )
    with file.open("rb") as handle:
        head = handle.read(4)
    if not head:
        raise UserError(
            f"{file}: empty file; expected JSONL or Parquet rows with 'prompt' and 'output_tokens'"
        )
    return head


def _lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((f"line {number}", record) for number, record in json_lines(file))

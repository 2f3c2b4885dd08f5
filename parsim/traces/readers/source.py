"""A file on disk: what kind of text or table it is, its columns, and where in it a record stands."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import polars as pl

from parsim.errors import UserError

HEAD_BYTES = 65_536
CSV_FIELD_LIMIT = 2**31 - 1
TOO_DEEP = "is JSON nested without end, not a request"
TOO_LONG = "holds a number of thousands of digits"


class Source:
    """A trace file to be read.

    Attributes:
        path: where it is.
        kind: "csv", "jsonl", "json" or "parquet", told from its first bytes, not from its name.

    Raises:
        UserError: it does not exist, is a folder, is empty, or is neither UTF-8 text nor Parquet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise UserError(f"{self.path}: is a folder, expected a trace file; name a file inside it")
        try:
            with self.open() as file:
                self.head = file.read(HEAD_BYTES)
        except FileNotFoundError:
            raise UserError(f"{self.path}: no such file; check the path") from None
        except (OSError, EOFError) as error:
            raise UserError(f"{self.path}: cannot be read ({error}); check the file") from error
        if not self.head.strip():
            raise UserError(f"{self.path}: is empty; expected one row a request")
        self.kind = self._kind()

    def open(self) -> IO[bytes]:
        """The file's bytes, unpacked if it is gzip-compressed."""
        with open(self.path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        return gzip.open(self.path, "rb") if packed else open(self.path, "rb")  # type: ignore[return-value]

    def text(self) -> IO[str]:
        return io.TextIOWrapper(self.open(), encoding="utf-8-sig", newline="")

    def _kind(self) -> str:
        if self.head.startswith(b"PAR1"):
            return "parquet"
        try:
            text = codecs.getincrementaldecoder("utf-8")().decode(self.head)
        except UnicodeDecodeError as error:
            line = self.head[: error.start].count(b"\n") + 1
            raise UserError(
                f"{self.path}: line {line} is not UTF-8 text; save the file as UTF-8 or Parquet"
            ) from None
        if "\x00" in text:
            raise UserError(
                f"{self.path}: is a binary file, expected CSV, JSONL, JSON or Parquet; convert it first"
            )
        start = text.removeprefix("\ufeff").lstrip()[:1]
        if start == "[":
            return "json"
        if start != "{":
            return "csv"
        first = self.first_object
        return "json" if first is None or "input_lens" in first or "request_throughput" in first else "jsonl"

    @cached_property
    def first_object(self) -> dict[str, Any] | None:
        """The JSON object on the first line with text; None for a JSON file over many lines."""
        with self.text() as file:
            line = next(line for line in file if line.strip())
        try:
            first = json.loads(line)
        except json.JSONDecodeError:
            if line.strip() == "{":
                return None
            raise UserError(f"{self.path}: line 1 is not complete JSON; mend or delete the line") from None
        except RecursionError:
            raise UserError(f"{self.path}: line 1 {TOO_DEEP}") from None
        except ValueError:
            raise UserError(f"{self.path}: line 1 {TOO_LONG}") from None
        return first if isinstance(first, dict) else None

    @cached_property
    def columns(self) -> list[str]:
        """Column names: the CSV header, the keys of the first JSON object, the Parquet schema."""
        if self.kind == "parquet":
            return list(self.parquet_schema)
        if self.kind == "csv":
            with self.text() as file:
                return [name.strip() for name in next(csv.reader(file), [])]
        if self.kind == "json":
            return list(self.json if isinstance(self.json, dict) else self.json[0])
        return list(self.first_object or {})

    def csv(self, columns: Sequence[str]) -> pl.DataFrame:
        """The named columns as text, with `row` numbering the records from 0; blank lines are left out.

        Raises:
            UserError: a record has too many fields, a quote is not closed, or a byte is not UTF-8.
        """
        header = self.columns
        for column in columns:
            if header.count(column) > 1:
                raise UserError(f"{self.path}: line 1 has the column {column} twice; rename or delete one")
        try:
            frame = pl.read_csv(
                self.path, infer_schema=False, glob=False, columns=sorted(map(header.index, columns))
            )
        except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
            raise self._csv_fault(error) from None
        frame.columns = sorted(columns, key=header.index)
        return frame.with_row_index("row").filter(~pl.all_horizontal(pl.col(list(columns)).is_null()))

    def _csv_fault(self, error: Exception) -> UserError:
        """The line at which the CSV text breaks."""
        csv.field_size_limit(CSV_FIELD_LIMIT)
        width = len(self.columns)
        try:
            with self.text() as file:
                reader = csv.reader(file, strict=True)
                for record in reader:
                    if len(record) > width:
                        found = (
                            f"line {reader.line_num} has {len(record)} fields where the header has {width}"
                        )
                        return UserError(f"{self.path}: {found}; mend or delete the line")
        except csv.Error as fault:
            return UserError(
                f"{self.path}: line {reader.line_num}: {fault}; close the quote or delete the line"
            )
        except UnicodeDecodeError:
            return self._not_utf8()
        return UserError(f"{self.path}: is not readable CSV ({_brief(error)}); mend the file")

    def _not_utf8(self) -> UserError:
        with self.open() as file:
            for number, line in enumerate(file, start=1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError:
                    return UserError(f"{self.path}: line {number} is not UTF-8 text; save the file as UTF-8")
        return UserError(f"{self.path}: is not UTF-8 text; save the file as UTF-8")

    def jsonl(self, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """The named fields in the given types (null where absent), with `row` numbering the objects from 0.

        Numbers are asked for as text, so that a bad value is a bad row and not an unreadable file.

        Raises:
            UserError: a line is not a complete JSON object, or a list is of another type.
        """
        # read_ndjson takes *, ? and [] in a name for a pattern, and stops at a byte order mark
        marked = self.head.startswith(codecs.BOM_UTF8)
        content: bytes | Path = self.path
        if marked or set(self.path.name) & set("*?["):
            with self.open() as file:
                content = file.read().removeprefix(codecs.BOM_UTF8)
        try:
            return pl.read_ndjson(content, schema=schema).with_row_index("row")
        except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
            raise self._jsonl_fault(schema, error) from None

    def _jsonl_fault(self, schema: Mapping[str, pl.DataType], error: Exception) -> UserError:
        """The line at which the JSON text breaks, or the value that is not of its type."""
        try:
            with self.text() as file:
                for number, line in enumerate(file, start=1):
                    fault = _line_fault(line, schema) if line.strip() else None
                    if fault:
                        return UserError(f"{self.path}: line {number}: {fault}; mend or delete the line")
        except UnicodeDecodeError:
            return self._not_utf8()
        return UserError(f"{self.path}: is not readable JSONL ({_brief(error)}); mend the file")

    @cached_property
    def json(self) -> Any:
        """The whole file as one JSON value: an object, or a list of objects.

        Raises:
            UserError: it is not complete JSON; the line is named.
        """
        try:
            with self.text() as file:
                value = json.load(file)
        except json.JSONDecodeError as error:
            hint = (
                "holds more than one result"
                if error.msg == "Extra data"
                else f"is not complete JSON ({error.msg})"
            )
            raise UserError(
                f"{self.path}: line {error.lineno}: {hint}; keep one whole JSON value a file"
            ) from None
        except RecursionError:
            raise UserError(f"{self.path}: {TOO_DEEP}") from None
        except UnicodeDecodeError:
            raise self._not_utf8() from None
        except ValueError:
            raise UserError(f"{self.path}: {TOO_LONG}") from None
        if not isinstance(value, dict) and not (value and all(isinstance(item, dict) for item in value)):
            raise UserError(f"{self.path}: expected a JSON object or a list of objects; check the file")
        return value

    @cached_property
    def parquet_schema(self) -> dict[str, pl.DataType]:
        """Columns and their types."""
        with self._whole_parquet(), self.open() as file:
            return dict(pl.read_parquet_schema(file))

    def parquet(self, columns: Sequence[str]) -> pl.DataFrame:
        """The named columns, with `row` numbering the rows from 0."""
        with self._whole_parquet():
            return pl.read_parquet(self.path, columns=list(columns), glob=False).with_row_index("row")

    def parquet_metadata(self) -> dict[str, str]:
        """The key-value metadata, without Arrow's own."""
        with self._whole_parquet(), self.open() as file:
            return {
                key: text for key, text in pl.read_parquet_metadata(file).items() if key != "ARROW:schema"
            }

    @contextmanager
    def _whole_parquet(self) -> Iterator[None]:
        try:
            yield
        except (pl.exceptions.PolarsError, OSError) as error:
            raise UserError(
                f"{self.path}: is not whole Parquet ({_brief(error)}); fetch or write it again"
            ) from None

    def where(self, records: Sequence[int]) -> list[str]:
        """Places of records (0-based, ascending) as a person finds them: "line 7", or "row 7" of a table."""
        if self.kind in ("parquet", "json"):
            return [f"row {record + 1}" for record in records]
        wanted, places = set(records), {}
        with self.text() as file:
            starts = _csv_lines(file) if self.kind == "csv" else _jsonl_lines(file)
            for record, line in enumerate(starts):
                if record in wanted:
                    places[record] = f"line {line}"
                if len(places) == len(wanted):
                    break
        return [places[record] for record in records]


def _csv_lines(file: IO[str]) -> Iterator[int]:
    """First line (1-based) of each record after the header."""
    csv.field_size_limit(CSV_FIELD_LIMIT)
    reader = csv.reader(file)
    next(reader)
    start = reader.line_num + 1
    for _ in reader:
        yield start
        start = reader.line_num + 1


def _jsonl_lines(file: IO[str]) -> Iterator[int]:
    """Line (1-based) of each object."""
    return (number for number, line in enumerate(file, start=1) if line.strip())


def _line_fault(line: str, schema: Mapping[str, pl.DataType]) -> str | None:
    """Why one line of JSONL cannot be read in the schema; None if it can."""
    try:
        record = json.loads(line)  # Python's reader takes NaN and Infinity, which JSON does not have
    except json.JSONDecodeError:
        return "is not complete JSON"
    except RecursionError:
        return TOO_DEEP
    except ValueError:
        return TOO_LONG
    if not isinstance(record, dict):
        return "is not a JSON object"
    for name, value in record.items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} is {value}, not a number"
        if isinstance(schema.get(name), pl.List):
            try:
                pl.Series([value], dtype=schema[name], strict=True)
            except (TypeError, OverflowError, pl.exceptions.PolarsError):
                return f"{name} is not a list of 64-bit integers"
    return None


def _brief(error: Exception) -> str:
    return str(error).splitlines()[0][:120]

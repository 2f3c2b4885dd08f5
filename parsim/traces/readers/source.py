"""A file on disk: what kind of text or table it is, its columns, and where in it a record stands."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import polars as pl

from parsim.errors import UserError
from parsim.traces.readers import json_text
from parsim.traces.readers.packing import content

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD_BYTES = 65_536
CSV_FIELD_LIMIT = 2**31 - 1
SEPARATORS = (",", ";", "\t", "|")


class Source:
    """A trace file to be read.

    Attributes:
        path: where it is.
        content: its bytes unpacked, or its path where nothing is to be unpacked.
        kind: "csv" (any separator), "jsonl", "json" or "parquet", told from its first bytes, not from its name.

    Raises:
        UserError: it does not exist, is a folder, is empty, or is neither UTF-8 or UTF-16 text nor Parquet.
    """

    def __init__(self, path: str | Path, without_end: bytes | None = None) -> None:
        """Look at a file; `without_end` is what of it is to be read, where its end is not."""
        self.path = Path(path)
        self.content = content(self.path) if without_end is None else without_end
        try:
            with self.open() as file:
                self.head = file.read(HEAD_BYTES)
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error}); check the file") from error
        if not self.head.strip():
            raise UserError(f"{self.path}: is empty; expected one row a request")
        self.kind = self._kind()

    def open(self) -> IO[bytes]:
        return io.BytesIO(self.content) if isinstance(self.content, bytes) else open(self.content, "rb")

    def text(self) -> IO[str]:
        return io.TextIOWrapper(self.open(), encoding="utf-8-sig", newline="")

    def _kind(self) -> str:
        if self.head.startswith(b"PAR1"):
            return "parquet"
        try:
            text = codecs.getincrementaldecoder("utf-8")().decode(
                self.head, final=len(self.head) < HEAD_BYTES
            )
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
        if start not in ("[", "{"):
            return "csv"
        if start == "[":
            return "json"
        try:
            with self.text() as file:
                filled = (line for line in file if line.strip())
                lines = json_text.begins_lines(next(filled), next(filled, None), self.path)
        except UnicodeDecodeError:
            raise self._not_utf8() from None
        return "jsonl" if lines else "json"

    @cached_property
    def separator(self) -> str:
        """What parts the fields of a CSV: the sign that parts its header most often."""
        with self.text() as file:
            head = file.readline()
        return max(
            SEPARATORS, key=lambda sign: (len(next(csv.reader([head], delimiter=sign), [])), sign == ",")
        )

    @cached_property
    def header(self) -> list[str]:
        with self.text() as file:
            return [name.strip() for name in next(csv.reader(file, delimiter=self.separator), [])]

    @cached_property
    def names(self) -> list[str]:
        """Columns of a table; of JSON the keys of all objects, those inside an object after a dot: `usage.tokens`."""
        if self.kind == "csv":
            return self.header
        if self.kind == "parquet":
            return [name for name, _ in json_text.leaves(self.parquet_schema)]
        return [name for name, _ in json_text.leaves(self.json_schema)]

    def table(self, names: Sequence[str]) -> pl.DataFrame:
        """The named columns, of CSV and JSON as text, with `row` numbering the records from 0.

        Raises:
            UserError: the text breaks somewhere (the line is named), or the Parquet file is not whole.
        """
        if self.kind == "csv":
            return self._csv(names)
        if self.kind == "parquet":
            tops = [name for name in self.parquet_schema if any(_within(one, name) for one in names)]
            with self._whole_parquet(), self.open() as file:
                frame = pl.read_parquet(file, columns=tops)
            frame = frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
        else:
            frame = self._json(names)
        return json_text.flat(frame, names).with_row_index("row")

    def _csv(self, names: Sequence[str]) -> pl.DataFrame:
        header = self.header
        for name in names:
            if header.count(name) > 1:
                raise UserError(f"{self.path}: line 1 has the column {name} twice; rename or delete one")
        try:
            frame = pl.read_csv(
                self.content,
                separator=self.separator,
                infer_schema=False,
                glob=False,
                columns=sorted(map(header.index, names)),
            )
        except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
            raise self._csv_fault(error) from None
        frame.columns = sorted(names, key=header.index)
        return frame.with_row_index("row").filter(~pl.all_horizontal(pl.col(list(names)).is_null()))

    def _csv_fault(self, error: Exception) -> UserError:
        """The line at which the CSV text breaks."""
        csv.field_size_limit(CSV_FIELD_LIMIT)
        width = len(self.header)
        try:
            with self.text() as file:
                reader = csv.reader(file, strict=True, delimiter=self.separator)
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
        return UserError(f"{self.path}: is not readable CSV ({json_text.brief(error)}); mend the file")

    def _not_utf8(self) -> UserError:
        with self.open() as file:
            for number, line in enumerate(file, start=1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError:
                    return UserError(f"{self.path}: line {number} is not UTF-8 text; save the file as UTF-8")
        return UserError(f"{self.path}: is not UTF-8 text; save the file as UTF-8")

    @cached_property
    def _lines(self) -> bytes | Path:
        """The JSON objects one a line, as Polars reads them: it takes *, ? and [] in a name for a pattern, and stops
        at a byte order mark."""
        if self.kind == "json":
            return json_text.as_lines(self.objects)
        if isinstance(self.content, Path):
            if not self.head.startswith(codecs.BOM_UTF8) and not set(self.path.name) & set("*?["):
                return self.content
            return self.content.read_bytes().removeprefix(codecs.BOM_UTF8)
        return self.content.removeprefix(codecs.BOM_UTF8)

    @cached_property
    def json_schema(self) -> dict[str, pl.DataType]:
        """Keys of all objects and their types, numbers as text, so that a bad value is a bad row and not an unreadable
        file."""
        lines = self._lines if isinstance(self._lines, Path) else io.BytesIO(self._lines)
        try:
            found = pl.scan_ndjson(lines, infer_schema_length=None).collect_schema()
        except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
            self._check_lines(error)
            keys = dict.fromkeys(key for item in self.objects for key in item)
            return {key: pl.String() for key in keys}
        return {name: json_text.as_text(kind) for name, kind in found.items()}

    def _json(self, names: Sequence[str]) -> pl.DataFrame:
        wanted = {
            name: kind for name, kind in self.json_schema.items() if any(_within(one, name) for one in names)
        }
        try:
            return pl.read_ndjson(self._lines, schema=wanted)
        except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
            self._check_lines(error)
            raise UserError(
                f"{self.path}: is not readable JSON ({json_text.brief(error)}); mend the file"
            ) from None

    def _check_lines(self, error: Exception) -> None:
        """Raise a `UserError` that names the line at which JSON lines break, if one does."""
        if self.kind != "jsonl":
            return
        try:
            with self.text() as file:
                for number, line in enumerate(file, start=1):
                    fault = json_text.line_fault(line) if line.strip() else None
                    if fault:
                        raise UserError(f"{self.path}: line {number}: {fault}; mend or delete the line")
        except UnicodeDecodeError:
            raise self._not_utf8() from None

    @cached_property
    def objects(self) -> list[dict[str, Any]]:
        """The objects of a JSON file: those of its list, or the one that it is; of JSON lines, one a line.

        Raises:
            UserError: it is not complete JSON; the line is named.
        """
        try:
            with self.text() as file:
                if self.kind == "jsonl":
                    return json_text.lines(file, self.path)
                return json_text.whole(file.read(), self.path)
        except UnicodeDecodeError:
            raise self._not_utf8() from None

    @cached_property
    def parquet_schema(self) -> dict[str, pl.DataType]:
        """Columns and their types."""
        with self._whole_parquet(), self.open() as file:
            return dict(pl.read_parquet_schema(file))

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
                f"{self.path}: is not whole Parquet ({json_text.brief(error)}); fetch or write it again"
            ) from None

    def where(self, records: Sequence[int]) -> list[str]:
        """Places of records (0-based, ascending) as a person finds them: "line 7", or "row 7" of a table."""
        if self.kind in ("parquet", "json"):
            return [f"row {record + 1}" for record in records]
        wanted, places = set(records), {}
        with self.text() as file:
            starts = self._csv_lines(file) if self.kind == "csv" else json_text.line_numbers(file)
            for record, line in enumerate(starts):
                if record in wanted:
                    places[record] = f"line {line}"
                if len(places) == len(wanted):
                    break
        return [places[record] for record in records]

    def _csv_lines(self, file: IO[str]) -> Iterator[int]:
        """First line (1-based) of each record after the header."""
        csv.field_size_limit(CSV_FIELD_LIMIT)
        reader = csv.reader(file, delimiter=self.separator)
        next(reader)
        start = reader.line_num + 1
        for _ in reader:
            yield start
            start = reader.line_num + 1


def _within(name: str, top: str) -> bool:
    return name == top or name.startswith(f"{top}.")

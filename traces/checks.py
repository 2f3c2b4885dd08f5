"""What every row must satisfy, and the one line that names those that do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from traces.errors import UserError
from traces.trace import OPTIONAL, REQUIRED, SCORE_PREFIX

MAX_TOKENS = 1_000_000_000
"""A longer request is a mistake of units: no model's context comes near, and sums stay within int64."""

SHOWN = 5
"""Bad rows that an error lists; the rest are counted."""

RAW_ARRIVAL = "raw.arrival_s"


@dataclass
class Draft:
    """Rows as a reader found them, in file order, before they are checked.

    Attributes:
        frame: columns under the schema's names but of the file's types, plus `row` (0-based record in the
            file); `raw.arrival_s` holds the file's own time where the reader had to parse it (a null
            `arrival_s` is then unparsable).
        fields: the schema's column -> the file's name for it, for messages.
        metadata: provenance known to the reader.
        notes: what the reader decided or dropped.
        starts_at_zero: whether arrivals are already counted from the start; else the first one becomes 0.
    """

    frame: pl.DataFrame
    fields: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    starts_at_zero: bool = False

    def called(self, column: str) -> str:
        return self.fields.get(column, column)


def checked(
    draft: Draft, path: str, where: Callable[[Sequence[int]], list[str]], *, skip_bad: bool = False
) -> tuple[pl.DataFrame, list[str]]:
    """The draft's rows in the schema's types, sorted by arrival, and notes on what was dropped or moved.

    A draft without `arrival_s` (a corpus) is checked for the rest and kept in file order.

    Args:
        path: the file's name, for messages.
        where: places in the file ("line 7") of the given records.
        skip_bad: drop bad rows and note them rather than raise.

    Raises:
        UserError: rows break the schema (each is named with its place, field and value), or none is left.
    """
    frame, notes = draft.frame, list(draft.notes)
    if frame.is_empty():
        raise UserError(f"{path}: holds no requests; expected at least one row")
    width = len(str(frame.height - 1))
    if "request_id" not in frame.columns:
        ids = pl.int_range(pl.len()).cast(pl.String).str.zfill(width).alias("request_id")
        frame = frame.with_columns(ids)
    bad = _bad_rows(frame, draft)
    if not bad.is_empty():
        message = _describe(bad, where)
        if not skip_bad:
            mend = "mend or delete these rows, or drop them with `python -m traces convert --skip-bad`"
            raise UserError(f"{path}: {message}; {mend}")
        frame = frame.join(bad, on="row", how="anti", maintain_order="left")
        notes.append(f"dropped {message}")
        if frame.is_empty():
            raise UserError(f"{path}: holds no good row; {message}")
    frame = _typed(frame, draft)
    if "arrival_s" in frame.columns:
        frame = _in_order(frame, draft, notes)
    return frame.drop("row"), notes


def _is_text(frame: pl.DataFrame, column: str) -> bool:
    return frame.schema[column] == pl.String


def _number(frame: pl.DataFrame, column: str) -> pl.Expr:
    """The column as f64; null where it is not a number."""
    value = pl.col(column)
    if _is_text(frame, column):
        value = value.str.strip_chars()
    elif not frame.schema[column].is_numeric():
        return pl.lit(None, pl.Float64)
    return value.cast(pl.Float64, strict=False)


def _missing(frame: pl.DataFrame, column: str) -> pl.Expr:
    missing = pl.col(column).is_null()
    return missing | (pl.col(column).str.strip_chars() == "") if _is_text(frame, column) else missing


def _shown(frame: pl.DataFrame, column: str) -> pl.Expr:
    """The cell as text, shortened; null (which makes the message null) only where the cell is."""
    return pl.col(column).cast(pl.String).str.slice(0, 40)


def _number_fault(frame: pl.DataFrame, column: str, *, whole: bool, least: int | None) -> pl.Expr:
    """Why a cell is not an acceptable number, as text; null where it is."""
    raw = RAW_ARRIVAL if column == "arrival_s" and RAW_ARRIVAL in frame.columns else column
    value, text = _number(frame, column), _shown(frame, raw)
    fault = (
        pl.when(_missing(frame, raw))
        .then(pl.lit("is missing"))
        .when(value.is_null())
        .then(pl.format(f"is '{{}}', not a {'number' if raw == column else 'time'}", text))
        .when(value.is_nan())
        .then(pl.lit("is NaN"))
        .when(value.is_infinite())
        .then(pl.lit("is infinite"))
    )
    if least is not None:
        fault = fault.when(value < least).then(pl.format(f"is {{}}, must be >= {least}", text))
    if whole:
        fault = fault.when(value != value.floor()).then(pl.format("is {}, not a whole number", text))
        fault = fault.when(value > MAX_TOKENS).then(
            pl.format(f"is {{}}, above {MAX_TOKENS:,} tokens: check its unit", text)
        )
    return fault.otherwise(pl.lit(None, pl.String))


def _faults(frame: pl.DataFrame, draft: Draft) -> dict[str, pl.Expr]:
    """Column -> expression: the fault of each cell as text, or null."""
    faults = {
        column: _number_fault(frame, column, whole=True, least=1)
        for column in ("prompt_tokens", "output_tokens")
    }
    if "arrival_s" in frame.columns:
        faults["arrival_s"] = _number_fault(frame, "arrival_s", whole=False, least=0)
    for column in frame.columns:
        if column.startswith(SCORE_PREFIX):
            faults[column] = _number_fault(frame, column, whole=False, least=None)
    faults["request_id"] = (
        pl.when(_missing(frame, "request_id"))
        .then(pl.lit("is missing"))
        .when(~pl.col("request_id").is_first_distinct())
        .then(pl.format("is '{}', which an earlier row has", _shown(frame, "request_id")))
    )
    if "prefix_hashes" in frame.columns:
        size = int(draft.metadata["hash_block_size"])
        tokens = _number(frame, "prompt_tokens")
        full, found = (tokens // size).cast(pl.Int64), pl.col("prefix_hashes").list.len().cast(pl.Int64)
        faults["prefix_hashes"] = (
            pl.when(pl.col("prefix_hashes").is_null())
            .then(pl.lit("is missing"))
            .when(pl.col("prefix_hashes").list.eval(pl.element().is_null()).list.any())
            .then(pl.lit("holds something that is not a 64-bit integer"))
            .when((found < full) | (found > (tokens / size).ceil().cast(pl.Int64)))
            .then(
                pl.format(
                    f"has {{}} hashes where the prompt has {{}} full blocks of {size} tokens", found, full
                )
            )
        )
    return faults


def _bad_rows(frame: pl.DataFrame, draft: Draft) -> pl.DataFrame:
    """`row` and `fault` ("FIELD is ...") of each bad row, in file order; the first fault of a row is told."""
    faults = _faults(frame, draft)
    told = [
        pl.format(f"{draft.called(column).replace('{', '(').replace('}', ')')} {{}}", e)
        for column, e in faults.items()
    ]
    return frame.select("row", fault=pl.coalesce(told)).filter(pl.col("fault").is_not_null())


def _describe(bad: pl.DataFrame, where: Callable[[Sequence[int]], list[str]]) -> str:
    first = bad.head(SHOWN)
    places = where(first["row"].to_list())
    listed = "; ".join(f"{place}: {fault}" for place, fault in zip(places, first["fault"], strict=True))
    rest = f"; and {bad.height - SHOWN:,} more" if bad.height > SHOWN else ""
    return f"{bad.height:,} bad row{'s' if bad.height > 1 else ''}: {listed}{rest}"


def _typed(frame: pl.DataFrame, draft: Draft) -> pl.DataFrame:
    """Good rows in the schema's types and column order."""
    columns = [column for column in (*REQUIRED, *OPTIONAL) if column in frame.columns]
    scores = [column for column in frame.columns if column.startswith(SCORE_PREFIX)]
    typed = [
        _number(frame, column).cast(kind)
        if (kind := (REQUIRED | OPTIONAL)[column]).is_numeric()
        else pl.col(column).cast(kind)
        for column in columns
    ]
    frame = frame.select("row", *typed, *(_number(frame, column) for column in scores))
    if "prefix_hashes" in columns:
        full = pl.col("prompt_tokens") // int(draft.metadata["hash_block_size"])
        frame = frame.with_columns(pl.col("prefix_hashes").list.head(full))
    return frame


def _in_order(frame: pl.DataFrame, draft: Draft, notes: list[str]) -> pl.DataFrame:
    if not draft.starts_at_zero:
        frame = frame.with_columns(pl.col("arrival_s") - pl.col("arrival_s").min())
    late = int((frame["arrival_s"].diff() < 0).sum())
    if late:
        notes.append(f"{late:,} of {frame.height:,} rows arrive before the row above them: sorted by arrival")
        frame = frame.sort("arrival_s", maintain_order=True)
    return frame

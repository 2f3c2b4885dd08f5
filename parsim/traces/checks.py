"""What every row must satisfy, and the one line that names those that do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from parsim.errors import UserError
from parsim.traces.trace import OPTIONAL, REQUIRED, SCORE_PREFIX

MAX_TOKENS = 1_000_000_000
"""A longer request is a mistake of units: no model's context comes near, and sums stay within int64."""

SHOWN = 5
"""Bad rows that an error lists; the rest are counted."""

MAX_ARRIVAL_S = 1e10
"""A later arrival (after 300 years) is a mistake of units, and beside it a clock in floating point would lose
microseconds."""

LOOSE = ("turn", "delay_s")
"""Columns in which what is no number is nothing."""

FAILED = "failed"
"""A column that tells which requests the file says failed."""

RAW_ARRIVAL = "raw.arrival_s"
NUMBER = "number."
"""A column `number.NAME` holds the cells of NAME as f64, null where they are no numbers."""


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
        whole_seconds: whether every time stamp is a whole second in the file.
        time_unit_sure: whether the unit of time stamps was said and not assumed.
        own: whether this project wrote the file, with its metadata.
    """

    frame: pl.DataFrame
    fields: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    starts_at_zero: bool = False
    whole_seconds: bool = False
    time_unit_sure: bool = True
    own: bool = False

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
    notes = list(draft.notes)
    frame = _without_failures(draft.frame, notes)
    if frame.is_empty():
        why = "".join(f"; {note}" for note in notes if note.startswith("dropped "))
        raise UserError(f"{path}: holds no requests; expected at least one row{why}")
    width = len(str(frame.height - 1))
    if "request_id" not in frame.columns:
        ids = pl.int_range(pl.len()).cast(pl.String).str.zfill(width).alias("request_id")
        frame = frame.with_columns(ids)
    frame = frame.with_columns(_number(frame, column).alias(NUMBER + column) for column in _numbers(frame))
    bad = _bad_rows(frame, draft)
    if not bad.is_empty():
        message = _describe(bad, where)
        if not skip_bad:
            mend = "mend or delete these rows, or drop them with `parsim traces convert --skip-bad`"
            raise UserError(f"{path}: {message}; {mend}")
        frame = frame.join(bad, on="row", how="anti", maintain_order="left")
        notes.append(f"dropped {message}")
        if frame.is_empty():
            raise UserError(f"{path}: holds no good row; {message}")
    try:
        frame = _typed(frame, draft)
    except pl.exceptions.PolarsError as error:
        raise UserError(f"{path}: a column is of an unexpected type ({str(error).splitlines()[0]})") from None
    for column in frame.columns:
        if column.startswith(SCORE_PREFIX) and (without := frame[column].null_count()):
            notes.append(f"{without:,} of {frame.height:,} requests have no {column}")
    if "arrival_s" in frame.columns:
        frame = _in_order(frame, draft, notes)
    return frame.drop("row"), notes


def _without_failures(frame: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """A request that the file says failed, or of 0 tokens, is dropped and counted, whatever the format."""
    signs = [_number(frame, name) == 0 for name in ("prompt_tokens", "output_tokens")]
    if FAILED in frame.columns:
        signs.append(pl.col(FAILED))
    kept = frame.filter(~pl.any_horizontal(signs).fill_null(False)).drop(FAILED, strict=False)
    if kept.height < frame.height:
        lost = frame.height - kept.height
        why = "0 tokens, or an error" if FAILED in frame.columns else "0 tokens"
        notes.append(f"dropped {lost:,} of {frame.height:,} requests that failed ({why})")
    return kept


def _is_text(frame: pl.DataFrame, column: str) -> bool:
    return frame.schema[column] == pl.String


def _numbers(frame: pl.DataFrame) -> list[str]:
    """Columns that hold numbers."""
    plain = ("arrival_s", "prompt_tokens", "output_tokens")
    return [column for column in frame.columns if column in plain or column.startswith(SCORE_PREFIX)]


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


Fault = tuple[pl.Expr, pl.Expr]
"""Whether a cell is bad, and why, as text. Conditions of a column are tried in order."""


def _number_faults(frame: pl.DataFrame, column: str, *, whole: bool, least: int | None) -> list[Fault]:
    """What can be wrong with a number."""
    raw = RAW_ARRIVAL if column == "arrival_s" and RAW_ARRIVAL in frame.columns else column
    value, text = pl.col(NUMBER + column), _shown(frame, raw)
    kind = "number" if raw == column else "time"
    faults: list[Fault] = [
        (_missing(frame, raw), pl.lit("is missing")),
        (value.is_null() & ~_missing(frame, raw), pl.format(f"is '{{}}', not a {kind}", text)),
        (value.is_nan(), pl.lit("is NaN")),
        (value.is_infinite(), pl.lit("is infinite")),
    ]
    if least is not None:
        faults.append((value < least, pl.format(f"is {{}}, must be >= {least}", text)))
    if whole:
        far = f"is {{}}, above {MAX_TOKENS:,} tokens: check its unit"
        faults.append((value != value.floor(), pl.format("is {}, not a whole number", text)))
        faults.append((value > MAX_TOKENS, pl.format(far, text)))
    return faults


def _hash_faults(size: int) -> list[Fault]:
    """What can be wrong with a list of hashes, one per `size` tokens, the last one perhaps of a partial block."""
    hashes, tokens = pl.col("prefix_hashes"), pl.col(NUMBER + "prompt_tokens")
    full, found = (tokens // size).cast(pl.Int64), hashes.list.len().cast(pl.Int64)
    count = f"has {{}} hashes where the prompt has {{}} full blocks of {size} tokens"
    return [
        (hashes.list.eval(pl.element().is_null()).list.any(), pl.lit("has an id that is empty")),
        (
            (found > 0) & ((found < full) | (found > (tokens / size).ceil().cast(pl.Int64))),
            pl.format(count, found, full),
        ),
    ]


def _faults(frame: pl.DataFrame, draft: Draft) -> dict[str, list[Fault]]:
    """Column -> what can be wrong with its cells."""
    faults = {
        column: _number_faults(frame, column, whole=True, least=1)
        for column in ("prompt_tokens", "output_tokens")
    }
    if "arrival_s" in frame.columns:
        told = RAW_ARRIVAL if RAW_ARRIVAL in frame.columns else "arrival_s"
        late = pl.format(f"is {{}}, above {MAX_ARRIVAL_S:g} s: check its unit", _shown(frame, told))
        faults["arrival_s"] = [
            *_number_faults(frame, "arrival_s", whole=False, least=0),
            (pl.col(NUMBER + "arrival_s") > MAX_ARRIVAL_S, late),
        ]
    for column in frame.columns:
        if column.startswith(SCORE_PREFIX):
            faults[column] = _number_faults(frame, column, whole=False, least=None)[1:]
    if "request_id" in draft.frame.columns:
        repeat = pl.format("is '{}', which an earlier row has", _shown(frame, "request_id"))
        faults["request_id"] = [
            (_missing(frame, "request_id"), pl.lit("is missing")),
            (pl.col("repeats"), repeat),
        ]
    if "prefix_hashes" in frame.columns:
        faults["prefix_hashes"] = _hash_faults(int(draft.metadata["hash_block_size"]))
    return faults


def _bad_rows(frame: pl.DataFrame, draft: Draft) -> pl.DataFrame:
    """`row` and `fault` ("FIELD is ...") of each bad row, in file order; the first fault of a row is told.

    Words are put together for the bad rows only: for a million good ones that would take seconds.
    """
    faults = _faults(frame, draft)
    if "request_id" in faults:
        frame = frame.with_columns(repeats=~pl.col("request_id").is_first_distinct())
    conditions = [is_bad for column in faults.values() for is_bad, _ in column]
    bad = frame.filter(pl.any_horizontal(*conditions).fill_null(False))
    told = []
    for column, kinds in faults.items():
        reasons = pl.coalesce([pl.when(is_bad).then(reason) for is_bad, reason in kinds])
        told.append(pl.concat_str(pl.lit(f"{draft.called(column)} "), reasons))
    return bad.select("row", fault=pl.coalesce(told))


def _describe(bad: pl.DataFrame, where: Callable[[Sequence[int]], list[str]]) -> str:
    first = bad.head(SHOWN)
    places = where(first["row"].to_list())
    listed = "; ".join(f"{place}: {fault}" for place, fault in zip(places, first["fault"], strict=True))
    rest = f"; and {bad.height - SHOWN:,} more" if bad.height > SHOWN else ""
    return f"{bad.height:,} bad row{'s' if bad.height > 1 else ''}: {listed}{rest}"


def _typed(frame: pl.DataFrame, draft: Draft) -> pl.DataFrame:
    """Good rows in the schema's types and column order."""
    schema = (
        REQUIRED
        | OPTIONAL
        | {column: pl.Float64() for column in frame.columns if column.startswith(SCORE_PREFIX)}
    )
    numbers = _numbers(frame)
    columns = [column for column in schema if column in frame.columns]
    frame = frame.select(
        "row",
        *(
            (pl.col(NUMBER + column) if column in numbers else pl.col(column))
            .cast(schema[column], strict=column not in LOOSE)
            .alias(column)
            for column in columns
        ),
    )
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

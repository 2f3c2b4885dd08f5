"""JSON as it stands in files: objects one a line, in a list, or one inside another."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import polars as pl

from parsim.errors import UserError

TOO_DEEP = "is JSON nested without end, not a request"
TOO_LONG = "holds a number of thousands of digits"
WRAPPERS = ("data", "results", "records", "rows", "items", "entries", "logs")
MOST_PARTS = 2000
"""Keys that a nested object is opened to; one of more is a map of names, not a record."""


def begins_lines(first: str, second: str | None, path: Path) -> bool:
    """Whether a file that begins with `{` holds an object a line, rather than one object over many lines.

    Raises:
        UserError: its first line is broken JSON.
    """
    try:
        if wrapped(json.loads(first)) and second is None:
            return False
    except json.JSONDecodeError:
        if second is not None and not second.lstrip().startswith("{"):
            return False
        raise UserError(f"{path}: line 1 is not complete JSON; mend or delete the line") from None
    except RecursionError:
        raise UserError(f"{path}: line 1 {TOO_DEEP}") from None
    except ValueError:
        raise UserError(f"{path}: line 1 {TOO_LONG}") from None
    return True


def wrapped(value: Any) -> list[dict[str, Any]] | None:
    """The records that one object holds under a usual name: `{"data": [...]}`; None if it holds none."""
    for name in WRAPPERS if isinstance(value, dict) else ():
        items = value.get(name)
        if isinstance(items, list) and items and all(isinstance(item, dict) for item in items):
            return items
    return None


def whole(text: str, path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON list, or the object that the text is.

    Raises:
        UserError: it is not complete JSON, or neither of the two; the line is named.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}: line {error.lineno}: is not complete JSON ({error.msg}); keep one whole JSON value a file"
        ) from None
    except RecursionError:
        raise UserError(f"{path}: {TOO_DEEP}") from None
    except ValueError:
        raise UserError(f"{path}: {TOO_LONG}") from None
    items = value if isinstance(value, list) else wrapped(value) or [value]
    if not items or not all(isinstance(item, dict) for item in items):
        raise UserError(f"{path}: expected a JSON object or a list of objects; check the file")
    return items


def lines(file: IO[str], path: Path) -> list[dict[str, Any]]:
    """The object of each line with text.

    Raises:
        UserError: a line is none; it is named.
    """
    found = []
    for number, line in enumerate(file, start=1):
        if line.strip():
            fault = line_fault(line)
            if fault:
                raise UserError(f"{path}: line {number}: {fault}; mend or delete the line")
            found.append(json.loads(line))
    return found


def line_fault(line: str) -> str | None:
    """Why one line holds no JSON object; None if it does."""
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
    return None


def line_numbers(file: IO[str]) -> Iterator[int]:
    """Line (1-based) of each object."""
    return (number for number, line in enumerate(file, start=1) if line.strip())


def as_lines(objects: Sequence[Mapping[str, Any]]) -> bytes:
    """The objects as JSON lines; what JSON does not have (NaN, Infinity) as text, so that it is a bad value."""
    return "\n".join(json.dumps(_finite(item)) for item in objects).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list) else value


def as_text(kind: Any) -> pl.DataType:
    """The type with all its numbers as text."""
    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: as_text(field.dtype) for field in kind.fields})
    return pl.List(as_text(kind.inner)) if isinstance(kind, pl.List) else pl.String()


def leaves(schema: Mapping[str, pl.DataType], above: str = "") -> list[tuple[str, pl.DataType]]:
    """Names and types of what is no object itself; a name inside an object follows a dot."""
    found: list[tuple[str, pl.DataType]] = []
    for name, kind in schema.items():
        fields = kind.fields if isinstance(kind, pl.Struct) else []
        if fields and len(fields) < MOST_PARTS:
            inner = {field.name: field.dtype for field in fields}
            found += leaves(inner, f"{above}{name}.")  # type: ignore[arg-type]
        else:
            found.append((above + name, kind))
    return found


def flat(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The named leaves as columns."""
    return frame.select(
        _field(name, frame.columns).alias(name)
        for name, _ in leaves(dict(frame.schema))
        if name in set(names)
    )


def _field(name: str, columns: Sequence[str]) -> pl.Expr:
    top = next(column for column in columns if name == column or name.startswith(f"{column}."))
    expression, rest = pl.col(top), name[len(top) + 1 :]
    for part in rest.split(".") if rest else ():
        expression = expression.struct.field(part)
    return expression


def brief(error: Exception) -> str:
    return str(error).splitlines()[0][:120]

"""What a row of a prompt corpus must hold, checked before a frame is made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar

import polars as pl
from pydantic import AfterValidator, BaseModel, Field, StrictBool, ValidationError

from parsim.errors import UserError

MOST = 10**9
"""No response is longer: a larger number is damage."""


def _whole(value: str) -> str:
    value.encode()  # fails on half of a surrogate pair, which JSON can spell and UTF-8 cannot
    return value


def _not_nested(value: Any) -> Any:
    if isinstance(value, list | dict | bytes | timedelta):
        raise ValueError("nothing that text can be made of")
    return _whole(value) if isinstance(value, str) else value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("blank")
    return value


Text = Annotated[str, AfterValidator(_whole)]
Label = Annotated[Any, AfterValidator(_not_nested)]
Flag = StrictBool | Literal[0, 1]
_Tokens = Field(strict=True, ge=0, le=MOST)
Length = Annotated[float, _Tokens] | Annotated[Decimal, _Tokens]
Lengths = Length | list[Length]

_NAME = "text or a number"
_LENGTHS = f"a number of tokens from 1 to {MOST:,}, or a list of them"


class Row(BaseModel):
    """A prompt. What a field must hold stands in its description, which errors repeat."""

    prompt: Annotated[Text, AfterValidator(_not_blank)] = Field(
        description="text (of a conversation its first message)"
    )
    id: Label = Field(default=None, description=_NAME)
    dataset: Label = Field(default=None, description=_NAME)
    censored: Flag | None = Field(default=None, description="true or false")

    def models(self) -> list[Any]:
        """The models that the row names; None for one without a name."""
        return [*self.lengths()]

    def lengths(self) -> dict[Any, list[float]]:
        """Model (None where none is stated) -> lengths of its responses, one at least."""
        return {}


class ResponseRow(Row):
    """A prompt with the lengths of one model's responses, in tokens."""

    model: Label = Field(default=None, description=_NAME)
    output_tokens: Lengths = Field(description=_LENGTHS)

    def lengths(self) -> dict[Any, list[float]]:
        return _without_empty({self.model: self.output_tokens})


class ModelsRow(Row):
    """A prompt with the response lengths of several models; null where a model has none."""

    len: dict[Text, Lengths | None] | None = Field(
        default=None, description=f"an object of model -> {_LENGTHS}"
    )

    def models(self) -> list[Any]:
        return [*(self.len or ())]

    def lengths(self) -> dict[Any, list[float]]:
        return _without_empty(self.len or {})


def _without_empty(found: Mapping[Any, Lengths | None]) -> dict[Any, list[float]]:
    several = {
        model: one if isinstance(one, list) else [one] for model, one in found.items() if one is not None
    }
    return {model: [float(length) for length in lengths] for model, lengths in several.items() if lengths}


Checked = TypeVar("Checked", bound=BaseModel)


def check_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    kind: type[Checked],
    source: str,
    names: Mapping[str, str] | None = None,
) -> list[Checked]:
    """The rows, each of its kind.

    Args:
        rows: place and values of each.
        kind: what each must hold.
        source: file or data set, for the message.
        names: field -> column that holds it, where they differ.

    Raises:
        UserError: naming the first bad row, its field, the value, what was expected, and how many rows are bad.
    """
    names = names or {}
    columns = {field: names.get(field, field) for field in kind.model_fields}
    checked: list[Checked] = []
    first, bad = "", 0
    for place, record in rows:
        try:
            values = {field: record[column] for field, column in columns.items() if column in record}
            checked.append(kind.model_validate(values))
        except ValidationError as error:
            first = first or f"{place}: {_fault(error, values, kind, columns)}"
            bad += 1
    if bad:
        raise UserError(
            f"{source}: {first}; mend or remove " + (f"it ({bad:,} such rows in all)" if bad > 1 else "it")
        )
    return checked


def names_of(values: Iterable[Any]) -> pl.Series:
    """Names as text; null where there is none."""
    return pl.Series([None if value is None else str(value) for value in values], dtype=pl.String)


def _fault(
    error: ValidationError, values: Mapping[str, Any], kind: type[BaseModel], columns: Mapping[str, str]
) -> str:
    where = error.errors(include_url=False, include_context=False)[0]["loc"]
    field = str(where[0])
    value, name, expected = values.get(field), columns[field], kind.model_fields[field].description
    if isinstance(value, dict) and field == "len" and where[1] in value:
        value, name, expected = value[str(where[1])], f"{name} of model '{where[1]}'", _LENGTHS
    if isinstance(value, str) and not value.strip():
        return f"empty {name}"
    return f"{name} is {_shown(value)}, expected {expected}"


def _shown(value: Any, most: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str).encode(errors="backslashreplace").decode()
    return text if len(text) <= most else text[:most] + "..."

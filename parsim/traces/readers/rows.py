"""Rows out of records as Python has them, texts measured, lists of names shortened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from parsim.traces.readers.format import Rows

BYTES_PER_TOKEN = 4.0
"""UTF-8 bytes per cl100k_base token of English text: 3.6 (MMLU-Pro), 3.9 (Arena-Hard), 4.1 (GSM8K), 4.7
(AlpacaEval) as counted over those prompts."""


def estimated(words: pl.Series) -> pl.Series:
    """Tokens estimated from text."""
    return (words.str.len_bytes() / BYTES_PER_TOKEN).ceil().cast(pl.Int64)


def few(names: Sequence[object] | pl.Series, most: int = 20) -> str:
    found = [str(name) for name in names]
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def rows_of(records: Sequence[Mapping[str, object]], notes: Sequence[str] = (), **metadata: str) -> Rows:
    """Rows from records as Python has them; columns are the union over all of them."""
    names = dict.fromkeys(name for record in records for name in record)
    columns = {name: _series(name, [record.get(name) for record in records]) for name in names}
    return Rows(pl.DataFrame(columns).with_row_index("row"), notes, metadata)


def _series(name: str, values: list[object]) -> pl.Series:
    """Values of one type as they are; of several, as text."""
    try:
        return pl.Series(name, values, strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        texts = [
            None if value is None else value if isinstance(value, str) else str(value) for value in values
        ]
        return pl.Series(name, texts, dtype=pl.String)

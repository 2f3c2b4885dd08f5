"""Which requests a log says failed."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

FAILED_WORDS = ("error", "failed", "failure", "timeout", "cancelled", "canceled", "aborted", "exception")
DONE_WORDS = (
    "",
    "0",
    "ok",
    "success",
    "none",
    "null",
    "true",
    "false",
    "completed",
    "done",
    "finished",
    "200",
)


def failed(frame: pl.DataFrame, names: Sequence[str]) -> pl.Series | None:
    """Whether each request failed by what the named columns say: an error, a status of 400 or more, a cancellation;
    None if they say nothing."""
    found = []
    for name in names:
        if not isinstance(frame.schema[name], pl.List | pl.Struct):
            text = frame[name].cast(pl.String).str.strip_chars().str.to_lowercase().fill_null("")
            found.append(_failed(name.lower(), text).alias(name))
    return pl.select(pl.any_horizontal(found)).to_series() if found else None


def _failed(name: str, text: pl.Series) -> pl.Series:
    """Whether a request failed by what a column called `name` says of it."""
    if "success" in name:
        return text.is_in(("false", "0", "no"))
    if "cancel" in name:
        return text.is_in(("true", "1", "yes"))
    if "status" in name:
        code = text.cast(pl.Int64, strict=False)
        return text.is_in(FAILED_WORDS) | (code >= 400).fill_null(False)
    return ~text.is_in(DONE_WORDS)

"""Repeated samples of a prompt: a list of lengths in one row."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl


def one_sample_a_row(frame: pl.DataFrame, taken: Mapping[str, str]) -> tuple[pl.DataFrame, list[str]]:
    """The frame with a row for every sample, and a note if there are several; the second's id ends in `~2`.

    Args:
        frame: rows of a file, with `row`, their number.
        taken: a trace's column -> the file's, which may hold lists of `output_tokens`.
    """
    name, identity = taken.get("output_tokens"), taken.get("request_id")
    if name is None:
        return frame, []
    lengths = frame[name]
    if lengths.dtype == pl.String and lengths.str.starts_with("[").any():  # numbers here, lists there
        lengths = lengths.str.strip_chars("[] ").str.split(",").list.eval(pl.element().str.strip_chars())
    if not isinstance(lengths.dtype, pl.List):
        return frame, []
    samples = frame.with_columns(lengths).explode(name)
    if identity is not None:
        number, text = pl.int_range(1, pl.len() + 1).over("row"), pl.col(identity).cast(pl.String)
        again = pl.format("{}~{}", text, number)
        samples = samples.with_columns(pl.when(number > 1).then(again).otherwise(text).alias(identity))
    return samples, [f"{frame.height:,} prompts with repeated samples: {samples.height:,} rows, one a sample"]

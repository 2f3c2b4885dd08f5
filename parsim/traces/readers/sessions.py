"""Turns of one session: in what order they come, and how long after the turn before them has ended."""

from __future__ import annotations

import polars as pl

from parsim.traces.reading import TIME_UNITS


def seconds(delay: pl.Series, unit: str) -> pl.Series:
    """A column of delays in seconds; null where there is none or it is no number."""
    values = delay.str.strip_chars() if delay.dtype == pl.String else delay
    return values.cast(pl.Float64, strict=False) / TIME_UNITS[unit]


def with_gaps(frame: pl.DataFrame, starts: pl.Series, ends: pl.Series) -> pl.DataFrame:
    """`delay_s` as recorded: from the end of a session's turn to the next one's arrival, null where that came earlier
    than the end."""
    order = (
        frame.with_columns(_start=starts, _end=ends).with_row_index("_at").sort("_start", maintain_order=True)
    )
    gap = pl.col("_start") - pl.col("_end").shift(1).over("session_id")
    known = pl.when(pl.col("session_id").is_not_null() & (gap >= 0)).then(gap)
    found = order.with_columns(delay_s=known).sort("_at")
    return found.drop("_start", "_end", "_at") if found["delay_s"].is_not_null().any() else frame


def placed(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Turns that have a delay and no arrival at the earliest they can come: the arrival of the turn before them plus
    their delay. Also how many those are."""
    if "delay_s" not in frame.columns:
        return frame, 0
    missing = (
        frame["arrival_s"].is_null() & frame["delay_s"].is_not_null() & frame["session_id"].is_not_null()
    )
    count = int(missing.sum())
    if not count:
        return frame, 0
    order = ["turn"] if "turn" in frame.columns else []
    sorted_ = frame.with_row_index("_at").with_columns(_missing=missing).sort(*order, "_at", nulls_last=False)
    part = (~pl.col("_missing")).cum_sum().over("session_id").alias("_part")
    waits = pl.when("_missing").then("delay_s").otherwise(0.0).cum_sum().over("session_id", "_part")
    base = pl.col("arrival_s").forward_fill().over("session_id")
    found = sorted_.with_columns(part).with_columns(
        arrival_s=pl.when("_missing").then(base + waits).otherwise("arrival_s")
    )
    found = found.sort("_at").drop("_at", "_missing", "_part")
    if "raw.arrival_s" in found.columns:
        raw = (
            pl.when(missing)
            .then(pl.col("arrival_s").cast(pl.String))
            .otherwise(pl.col("raw.arrival_s").cast(pl.String))
        )
        found = found.with_columns(raw.alias("raw.arrival_s"))
    return found, count

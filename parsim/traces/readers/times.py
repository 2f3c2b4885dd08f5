"""Time stamps as files write them: numbers since some start or since 1970, and calendar times with zones."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from parsim.traces.reading import TIME_UNITS

MINUTE_NS = 60_000_000_000
SECOND_CHARS = len("2023-11-16 18:15:46")
REST = r"^(?<all>(?:[.,](?<fraction>\d+))?\s*(?<offset>Z|z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?)$"
OTHER_PATTERNS = (
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M",
    "%Y%m%dT%H%M%S",
    "%Y%m%d %H%M%S",
    "%Y%m%d%H%M%S",
    "%Y-%m-%d",
    "%a, %d %b %Y %H:%M:%S GMT",
    "%d.%m.%Y %H:%M:%S%.f",
    "%d.%m.%Y %H:%M",
)
"""Calendar times without a zone; `10/05/2024` is left out, for nobody knows its month."""
ZONED_PATTERNS = (
    "%d/%b/%Y:%H:%M:%S %z",
    "[%d/%b/%Y:%H:%M:%S %z]",
    "%a, %d %b %Y %H:%M:%S %z",
    "%Y%m%dT%H%M%S%#z",
)

EPOCH_S = 1e9
"""2001-09-09: numbers from here on that lie close together count from 1970."""
LATEST_S = 1e10
"""2286: more seconds than this are another unit."""
CLOSE = 1.5
"""Largest over smallest of stamps that count from 1970: from 2001 to 2016, or from 2016 to 2040."""

WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


@dataclass(frozen=True)
class Stamps:
    """Time stamps understood.

    Attributes:
        seconds: f64, null where a stamp is none. Since `start` where `absolute`, else as the file counts.
        said: what they were taken for, in words.
        absolute: whether they are times of the calendar; the earliest of them is 0 then.
        sure: whether the unit was said by the user, the name or the calendar, and not assumed.
        whole: whether every one is a whole second in the file.
    """

    seconds: pl.Series
    said: str
    absolute: bool
    sure: bool
    whole: bool


def stamps(series: pl.Series, asked: str | None, named: str | None, usual: str | None) -> Stamps:
    """What a column of time stamps says.

    Args:
        series: text, numbers, or times.
        asked: the unit of numbers that the user gave.
        named: the unit that the column's name says.
        usual: the unit of the format where nothing else is known.
    """
    if series.dtype == pl.Duration:
        since = series.dt.total_nanoseconds()
        on_seconds = bool((since.drop_nulls() % TIME_UNITS["ns"] == 0).all()) and since.count() > 0
        return Stamps(_over(since, TIME_UNITS["ns"]), "times since a start", False, True, on_seconds)
    if series.dtype.is_temporal():
        return _calendar(series.cast(pl.Datetime("ns"), strict=False).dt.epoch("ns"))
    if series.dtype == pl.String:
        text = series.str.strip_chars()
        values = text.cast(pl.Float64, strict=False)
        if values.null_count() > text.null_count():
            commas = text.str.replace(r"^(-?\d+),(\d+)$", "$1.$2").cast(pl.Float64, strict=False)
            values = commas if commas.null_count() < values.null_count() else values
        said = int((text.is_not_null() & (text != "")).sum())
        if 2 * (len(values) - values.null_count()) < said:
            return _calendar(_nanoseconds(text))
        whole = text.cast(pl.Int64, strict=False)
    else:
        values = series.cast(pl.Float64, strict=False)
        whole = (
            series.cast(pl.Int64, strict=False)
            if series.dtype.is_integer()
            else pl.Series([None], dtype=pl.Int64)
        )
    unit, epoch, sure = _unit(values, asked, named, usual)
    scale = TIME_UNITS[unit]
    known = values.filter(values.is_finite().fill_null(False))
    on_seconds = bool(((known / scale) % 1 == 0).all()) and len(known) > 0
    if epoch:
        exact = whole.null_count() == values.null_count() and len(whole) == len(values)
        base = whole - whole.min() if exact else values - known.min()
        return Stamps(_over(base, scale), f"{WORDS[unit]} since 1970", True, sure, on_seconds)
    return Stamps(_over(values, scale), WORDS[unit], False, sure, on_seconds)


def _unit(
    values: pl.Series, asked: str | None, named: str | None, usual: str | None
) -> tuple[str, bool, bool]:
    """(unit, whether since 1970, whether it is sure). Stamps since 1970 are large and lie close together; which unit
    makes them a year of this age is seen from their size."""
    known = values.filter(values.is_finite().fill_null(False))
    low, high = known.quantile(0.01, "lower"), known.quantile(0.99, "higher")
    by_size = None
    if low is not None and high is not None and low >= EPOCH_S and high <= CLOSE * low:
        by_size = next(
            (unit for unit, scale in TIME_UNITS.items() if EPOCH_S <= low / scale < LATEST_S), None
        )
    if asked is not None:
        return asked, by_size == asked, True
    if by_size is not None and (named is None or named == by_size or low / TIME_UNITS[named] > LATEST_S):  # type: ignore[operator]
        return by_size, True, True
    return named or usual or "s", False, named is not None


def _over(values: pl.Series, scale: int) -> pl.Series:
    """The quotient rounded once: Polars multiplies by the reciprocal, which is a bit off. Nulls stay."""
    quotients = pl.Series(values.fill_null(0).to_numpy() / scale)
    return pl.select(pl.when(values.is_not_null()).then(quotients)).to_series()


def _calendar(nanoseconds: pl.Series) -> Stamps:
    since = nanoseconds - nanoseconds.min()
    whole = bool((nanoseconds.drop_nulls() % 1_000_000_000 == 0).all()) and nanoseconds.null_count() < len(
        nanoseconds
    )
    return Stamps(_over(since, TIME_UNITS["ns"]), "calendar times", True, True, whole)


def _nanoseconds(text: pl.Series) -> pl.Series:
    """Nanoseconds since 1970 of calendar times; without a zone they are taken for UTC. Null where there is none."""
    found = _iso(text)
    if found.null_count() <= text.null_count():
        return found
    best = found
    for pattern in (*OTHER_PATTERNS, *ZONED_PATTERNS):
        zone = pattern in ZONED_PATTERNS
        one = text.str.to_datetime(pattern, time_unit="ns", strict=False, time_zone="UTC" if zone else None)
        if one.null_count() < best.null_count():
            best = one.dt.epoch("ns")
    return best


def _iso(text: pl.Series) -> pl.Series:
    """ISO 8601 and its likes: `2023-11-16 18:15:46.6805900`, `2024-05-10T00:00:00+02:00`, `2024/05/10 00:00:00,25Z`."""
    stamp = pl.col("stamp")
    second = stamp.str.head(SECOND_CHARS).str.replace(r"[Tt]", " ").str.replace_all("/", "-", literal=True)
    parts = text.to_frame("stamp").select(
        second.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ns", strict=False)
        .dt.epoch("ns")
        .alias("local"),
        stamp.str.slice(SECOND_CHARS).str.extract_groups(REST).alias("rest"),
    )
    nanoseconds = pl.col("fraction").str.slice(0, 9).str.pad_end(9, "0").cast(pl.Int64).fill_null(0)
    offset = pl.col("offset").str.replace(r"^[A-Za-z].*", "+0000").str.replace(":", "", literal=True)
    parts = parts.unnest("rest").with_columns(nanoseconds.alias("fraction"), offset.alias("offset"))
    hours = pl.col("offset").str.slice(1, 2).cast(pl.Int64)
    minutes = hours * 60 + pl.col("offset").str.slice(3, 2).cast(pl.Int64, strict=False).fill_null(0)
    ahead = pl.when(pl.col("offset").str.starts_with("-")).then(-minutes).otherwise(minutes).fill_null(0)
    utc = pl.when(pl.col("all").is_not_null()).then(pl.col("local") + pl.col("fraction") - ahead * MINUTE_NS)
    return parts.select(utc.alias("utc"))["utc"]

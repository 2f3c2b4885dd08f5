"""Azure LLM inference traces, 2023 and 2024 (github.com/Azure/AzurePublicDataset): one CSV row a request.

`TIMESTAMP,ContextTokens,GeneratedTokens`. The 2023 files write seven fractional digits
(`2023-11-16 18:15:46.6805900`); the 2024 files add an offset from UTC (`2024-05-10 00:00:00.009930+00:00`)
and leave the fraction out when it is zero. No text, no hashes.
"""

from __future__ import annotations

import polars as pl

from parsim.traces.checks import RAW_ARRIVAL, Draft
from parsim.traces.readers.format import Format
from parsim.traces.readers.source import Source

MINUTE_NS = 60_000_000_000
SECOND_CHARS = len("2023-11-16 18:15:46")
REST = r"^(?<all>(?<fraction>\.\d+)?(?<offset>Z|[+-]\d{2}:?\d{2})?)$"


def read(source: Source) -> Draft:
    frame = source.csv(FORMAT.required).rename(
        {"TIMESTAMP": RAW_ARRIVAL, "ContextTokens": "prompt_tokens", "GeneratedTokens": "output_tokens"}
    )
    return Draft(
        frame.with_columns(arrival_s=_seconds(frame[RAW_ARRIVAL])),
        fields={
            "arrival_s": "TIMESTAMP",
            "prompt_tokens": "ContextTokens",
            "output_tokens": "GeneratedTokens",
        },
        metadata={
            "source": "a file in the columns of Azure's LLM inference traces (Azure/AzurePublicDataset)",
            "licence": "CC-BY-4.0 where it is Azure's own",
            "tokenizer": "not stated",
        },
    )


def _seconds(stamps: pl.Series) -> pl.Series:
    """Seconds since the earliest time stamp, from whole nanoseconds; null where unparsable."""
    stamp = pl.col("stamp").str.strip_chars()
    second = stamp.str.head(SECOND_CHARS).str.replace("T", " ", literal=True)
    parts = stamps.to_frame("stamp").select(
        second.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ns", strict=False)
        .dt.epoch("ns")
        .alias("local"),
        stamp.str.slice(SECOND_CHARS).str.extract_groups(REST).alias("rest"),
    )
    nanoseconds = pl.col("fraction").str.slice(1, 9).str.pad_end(9, "0").cast(pl.Int64).fill_null(0)
    offset = pl.col("offset").str.replace("Z", "+0000", literal=True).str.replace(":", "", literal=True)
    parts = parts.unnest("rest").with_columns(nanoseconds.alias("fraction"), offset.alias("offset"))
    minutes = pl.col("offset").str.slice(1, 2).cast(pl.Int64) * 60 + pl.col("offset").str.slice(3, 2).cast(
        pl.Int64
    )
    ahead = pl.when(pl.col("offset").str.starts_with("-")).then(-minutes).otherwise(minutes).fill_null(0)
    utc = pl.when(pl.col("all").is_not_null()).then(pl.col("local") + pl.col("fraction") - ahead * MINUTE_NS)
    times = parts.select(utc.alias("utc"))["utc"]
    return (times - times.min()) / 1e9


FORMAT = Format(
    "azure", "Azure 2023/2024 CSV", ("csv",), ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), read
)

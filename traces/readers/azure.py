"""Azure LLM inference traces, 2023 and 2024 (github.com/Azure/AzurePublicDataset): one CSV row a request.

`TIMESTAMP,ContextTokens,GeneratedTokens`. The 2023 files write seven fractional digits
(`2023-11-16 18:15:46.6805900`); the 2024 files add an offset from UTC (`2024-05-10 00:00:00.009930+00:00`)
and leave the fraction out when it is zero. No text, no hashes.
"""

from __future__ import annotations

import polars as pl

from traces.checks import RAW_ARRIVAL, Draft
from traces.readers.format import Format
from traces.readers.source import Source

OFFSET = r"(Z|[+-]\d{2}:?\d{2})$"


def read(source: Source) -> Draft:
    frame = source.csv(FORMAT.required).rename(
        {"TIMESTAMP": RAW_ARRIVAL, "ContextTokens": "prompt_tokens", "GeneratedTokens": "output_tokens"}
    )
    return Draft(
        frame.with_columns(arrival_s=_seconds(pl.col(RAW_ARRIVAL))),
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


def _seconds(stamp: pl.Expr) -> pl.Expr:
    """Seconds since the earliest time stamp, from whole nanoseconds; null where unparsable."""
    stamp = stamp.str.strip_chars()
    local = stamp.str.replace(OFFSET, "").str.replace("T", " ", literal=True)
    nanoseconds = local.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="ns", strict=False).dt.epoch("ns")
    offset = (
        stamp.str.extract(OFFSET, 1)
        .str.replace("Z", "+00:00", literal=True)
        .str.replace(":", "", literal=True)
    )
    minutes = offset.str.slice(1, 2).cast(pl.Int64) * 60 + offset.str.slice(3, 2).cast(pl.Int64)
    ahead = pl.when(offset.str.starts_with("-")).then(-minutes).otherwise(minutes).fill_null(0)
    utc = nanoseconds - ahead * 60_000_000_000
    return (utc - utc.min()) / 1e9


FORMAT = Format(
    "azure", "Azure 2023/2024 CSV", ("csv",), ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), read
)

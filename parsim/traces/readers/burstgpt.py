"""BurstGPT traces (github.com/HPMLL/BurstGPT): one CSV row a request, columns found by name.

`Timestamp` (seconds), `Model`, `Request tokens`, `Response tokens`, `Total tokens`, `Log Type`; the third
trace adds `Session ID` (conversation mode only) and `Elapsed time`. A row with zero response tokens is a
failed request: dropped and counted. `client_id` is the log type, API or conversation.
"""

from __future__ import annotations

import polars as pl

from parsim.traces.checks import Draft
from parsim.traces.readers.format import Format
from parsim.traces.readers.source import Source

FIELDS = {
    "arrival_s": "Timestamp",
    "prompt_tokens": "Request tokens",
    "output_tokens": "Response tokens",
    "session_id": "Session ID",
    "client_id": "Log Type",
}


def read(source: Source) -> Draft:
    fields = {column: name for column, name in FIELDS.items() if name in source.columns}
    frame = source.csv(list(fields.values())).rename({name: column for column, name in fields.items()})
    failed = pl.col("output_tokens").str.strip_chars().cast(pl.Float64, strict=False) == 0
    answered = frame.filter(~failed.fill_null(False))
    notes = []
    if answered.height < frame.height:
        lost = frame.height - answered.height
        notes.append(f"dropped {lost:,} of {frame.height:,} rows with zero response tokens: failed requests")
    metadata = {
        "source": "a file in the columns of BurstGPT's traces (github.com/HPMLL/BurstGPT)",
        "licence": "CC-BY-4.0 where it is BurstGPT's own",
        "tokenizer": "not stated (GPT-3.5 and GPT-4)",
    }
    return Draft(answered, fields=fields, metadata=metadata, notes=notes)


FORMAT = Format(
    "burstgpt", "BurstGPT CSV", ("csv",), ("Timestamp", "Request tokens", "Response tokens"), read
)

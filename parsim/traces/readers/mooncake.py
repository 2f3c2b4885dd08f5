"""Mooncake traces (FAST'25; github.com/kvcache-ai/Mooncake): one JSON object a line.

`timestamp` (milliseconds), `input_length`, `output_length`, `hash_ids`: one id per 512 tokens of the prompt,
the last one for the partial block too, which is left out here because only full blocks can be shared. Time
stamps stand on ticks of about 3 s; `parsim.traces.draw.jitter` spreads arrivals inside the tick.
"""

from __future__ import annotations

import polars as pl

from parsim.traces.checks import RAW_ARRIVAL, Draft
from parsim.traces.readers.format import Format
from parsim.traces.readers.source import Source

BLOCK_TOKENS = 512
MS = 1000.0


def read(source: Source) -> Draft:
    text, hashes = pl.String(), pl.List(pl.Int64())
    schema = {"timestamp": text, "input_length": text, "output_length": text, "hash_ids": hashes}
    fields = {
        "arrival_s": "timestamp",
        "prompt_tokens": "input_length",
        "output_tokens": "output_length",
        "prefix_hashes": "hash_ids",
    }
    frame = source.jsonl(schema).rename({name: column for column, name in fields.items()})
    frame = frame.rename({"arrival_s": RAW_ARRIVAL})
    milliseconds = pl.col(RAW_ARRIVAL).str.strip_chars().cast(pl.Float64, strict=False)
    return Draft(
        frame.with_columns(arrival_s=milliseconds / MS),
        fields=fields,
        metadata={
            "source": "a file in the layout of Mooncake's traces, FAST'25 (github.com/kvcache-ai/Mooncake)",
            "licence": "Apache-2.0 where it is Mooncake's own",
            "tokenizer": "not stated",
            "hash_block_size": str(BLOCK_TOKENS),
        },
    )


FORMAT = Format(
    "mooncake", "Mooncake JSONL", ("jsonl",), ("timestamp", "input_length", "output_length", "hash_ids"), read
)

"""LLMServingSim's recordings of real vLLM runs: one JSON object a line, a request each.

`request_id`, `input_toks`, `output_toks`, `arrival_time` (seconds since 1970). What the engine did with the
request stands in the same lines and is not part of a trace.
"""

from __future__ import annotations

import polars as pl

from parsim.traces.checks import Draft
from parsim.traces.readers.format import Format
from parsim.traces.readers.source import Source

FIELDS = {
    "request_id": "request_id",
    "arrival_s": "arrival_time",
    "prompt_tokens": "input_toks",
    "output_tokens": "output_toks",
}


def read(source: Source) -> Draft:
    frame = source.jsonl({name: pl.String() for name in FIELDS.values()})
    metadata = {
        "source": "a recording in LLMServingSim's layout (github.com/casys-kaist/LLMServingSim)",
        "licence": "MIT where it is LLMServingSim's own",
        "tokenizer": "the served model's",
    }
    return Draft(
        frame.rename({name: column for column, name in FIELDS.items()}), fields=FIELDS, metadata=metadata
    )


FORMAT = Format("servingsim", "LLMServingSim recording JSONL", ("jsonl",), tuple(FIELDS.values()), read)

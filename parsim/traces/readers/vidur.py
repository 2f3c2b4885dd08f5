"""vidur's CSV files: `num_prefill_tokens,num_decode_tokens`, and `arrived_at` (seconds) in its processed
traces.

Most of vidur's files hold lengths only: those are a corpus, and need arrivals from elsewhere (`join`).
"""

from __future__ import annotations

from parsim.traces.checks import Draft
from parsim.traces.readers.format import Format
from parsim.traces.readers.source import Source

FIELDS = {
    "prompt_tokens": "num_prefill_tokens",
    "output_tokens": "num_decode_tokens",
    "arrival_s": "arrived_at",
}
METADATA = {
    "source": "a file in vidur's columns (github.com/microsoft/vidur)",
    "licence": "MIT where it is vidur's own",
}


def read(source: Source) -> Draft:
    fields = {column: name for column, name in FIELDS.items() if name in source.columns}
    frame = source.csv(list(fields.values())).rename({name: column for column, name in fields.items()})
    return Draft(frame, fields=fields, metadata={**METADATA, "tokenizer": "not stated"})


LENGTHS = ("num_prefill_tokens", "num_decode_tokens")
FORMAT = Format("vidur", "vidur CSV", ("csv",), (*LENGTHS, "arrived_at"), read)
LENGTHS_FORMAT = Format("vidur-lengths", "vidur lengths CSV", ("csv",), LENGTHS, read, has_arrivals=False)

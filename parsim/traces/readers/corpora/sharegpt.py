"""ShareGPT conversations: `{"id", "conversations": [{"from", "value"}, ...]}`, in a JSON list or one a line. A
corpus: no arrivals.

A request is a conversation's first exchange. Tokens are those given (`prompt_tokens`, `output_tokens`) where
every item has them, else estimated from the text's size.
"""

from __future__ import annotations

from parsim.traces.readers.corpora.conversations import first_exchanges
from parsim.traces.readers.format import Format, Rows
from parsim.traces.readers.source import Source
from parsim.traces.reading import Reading

CARRIED = {"id": "id", "prompt_tokens": "prompt_tokens", "output_tokens": "output_tokens"}


def rows(source: Source, reading: Reading) -> Rows:
    return first_exchanges(source, "conversations", CARRIED)


FORMAT = Format(
    name="sharegpt",
    title="ShareGPT JSON or JSONL",
    origin="ShareGPT conversations, first exchange of each (the layout of huggingface.co/datasets/anon8231489123/"
    "ShareGPT_Vicuna_unfiltered)",
    signature=("conversations",),
    kinds=("json", "jsonl", "parquet"),
    fields={"request_id": ("id",)},
    lengths_only=True,
    rows=rows,
)

"""LMSYS-Chat-1M: `conversation_id`, `model`, `conversation` of `role` and `content`. A corpus: no arrivals.

Layout of huggingface.co/datasets/lmsys/lmsys-chat-1m. A request is a conversation's first exchange; tokens are
estimated from the text's size.
"""

from __future__ import annotations

from parsim.traces.readers.corpora.conversations import first_exchanges
from parsim.traces.readers.format import Format, Rows
from parsim.traces.readers.source import Source
from parsim.traces.reading import Reading

CARRIED = {"conversation_id": "id", "model": "model"}


def rows(source: Source, reading: Reading) -> Rows:
    return first_exchanges(source, "conversation", CARRIED)


FORMAT = Format(
    name="lmsys",
    title="LMSYS-Chat-1M",
    origin="conversations in the layout of LMSYS-Chat-1M (huggingface.co/datasets/lmsys/lmsys-chat-1m)",
    signature=("conversation", "conversation_id"),
    kinds=("json", "jsonl", "parquet"),
    fields={"request_id": ("id",)},
    lengths_only=True,
    rows=rows,
)

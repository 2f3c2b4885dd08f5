"""WildChat: `conversation_hash`, `model`, `timestamp`, `conversation` of `role` and `content`: prompts with
times, a trace.

Layout of huggingface.co/datasets/allenai/WildChat-1M. A request is a conversation's first exchange. `timestamp`
is when the **last** response of the conversation was logged; where the first turns have times of their own the
earliest is taken. Tokens are estimated from the text's size.
"""

from __future__ import annotations

import polars as pl

from parsim.traces.readers.corpora.conversations import _items, first_exchanges
from parsim.traces.readers.format import Format, Rows
from parsim.traces.readers.source import Source
from parsim.traces.reading import Reading

CARRIED = {"conversation_hash": "id", "model": "model", "timestamp": "timestamp", "hashed_ip": "client"}


def rows(source: Source, reading: Reading) -> Rows:
    found = first_exchanges(source, "conversation", CARRIED)
    items = _items(source)
    stamps = [
        next(
            (str(turn["timestamp"]) for turn in items[row]["conversation"][:2] if turn.get("timestamp")), None
        )
        for row in found.frame["row"].to_list()
    ]
    whole = (
        found.frame["timestamp"].cast(pl.String)
        if "timestamp" in found.frame.columns
        else pl.lit(None, pl.String)
    )
    frame = found.frame.with_columns(timestamp=pl.coalesce(pl.Series(stamps, dtype=pl.String), whole))
    return Rows(frame, found.notes, found.metadata)


FORMAT = Format(
    name="wildchat",
    title="WildChat",
    origin="conversations in the layout of WildChat (huggingface.co/datasets/allenai/WildChat-1M)",
    signature=("conversation", "conversation_hash", "timestamp"),
    kinds=("json", "jsonl", "parquet"),
    fields={"request_id": ("id",), "arrival_s": ("timestamp",), "client_id": ("client",)},
    licence="ODC-BY where it is WildChat's own",
    rows=rows,
)

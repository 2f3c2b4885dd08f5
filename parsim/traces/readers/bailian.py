"""Qwen-Bailian traces (ATC'25; github.com/alibaba-edu/qwen-bailian-usagetraces-anon): one JSON object a line.

`timestamp` (seconds), `input_length`, `output_length`, `hash_ids` (one per 16 tokens), `chat_id`,
`parent_chat_id` (-1 at a conversation's first turn), `type` (text, search, image, file), `turn`.
`session_id` is the first chat of the conversation, `client_id` the type.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from parsim.traces.checks import Draft
from parsim.traces.readers.format import Format
from parsim.traces.readers.source import Source

BLOCK_TOKENS = 16
FIELDS = {
    "arrival_s": "timestamp",
    "prompt_tokens": "input_length",
    "output_tokens": "output_length",
    "prefix_hashes": "hash_ids",
    "client_id": "type",
}


def read(source: Source) -> Draft:
    text, hashes = pl.String(), pl.List(pl.Int64())
    names = {*FIELDS.values(), "chat_id", "parent_chat_id"}
    schema = {name: hashes if name == "hash_ids" else text for name in sorted(names)}
    frame = source.jsonl(schema).rename({name: column for column, name in FIELDS.items()})
    frame = frame.with_columns(session_id=first_chats(frame["chat_id"], frame["parent_chat_id"]))
    metadata = {
        "source": "a file in the layout of the Qwen-Bailian traces, ATC'25",
        "licence": "Apache-2.0 where it is Alibaba's own",
        "tokenizer": "Qwen",
        "hash_block_size": str(BLOCK_TOKENS),
    }
    return Draft(frame.drop("chat_id", "parent_chat_id"), fields=FIELDS, metadata=metadata)


def first_chats(chats: pl.Series, parents: pl.Series) -> pl.Series:
    """Per row the id of the chat that its conversation began with, by following parents within the file.

    Each pass doubles the distance looked back, so a conversation of n turns takes log2(n) passes. A parent
    that is not in the file counts as none.
    """
    rows = pl.DataFrame({"chat": chats, "row": np.arange(len(chats))}).unique("chat", keep="first")
    found = pl.DataFrame({"chat": parents}).join(rows, on="chat", how="left", maintain_order="left")
    own = np.arange(len(chats))
    above = found["row"].fill_null(-1).to_numpy()
    above = np.where(above < 0, own, above)
    for _ in range(max(len(chats), 1).bit_length()):
        further = above[above]
        if np.array_equal(further, above):
            break
        above = further
    return chats.gather(above)


FORMAT = Format(
    "bailian",
    "Qwen-Bailian JSONL",
    ("jsonl",),
    ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "hash_ids"),
    read,
)

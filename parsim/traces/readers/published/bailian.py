"""Qwen-Bailian traces (ATC'25): one JSON object a line.

`timestamp` (seconds), `input_length`, `output_length`, `hash_ids` (one per 16 tokens), `chat_id`,
`parent_chat_id` (-1 at a conversation's first turn), `type` (text, search, image, file), `turn`.
`session_id` is the first chat of the conversation, `client_id` the type.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from parsim.traces.readers.format import Format, Rows
from parsim.traces.readers.source import Source
from parsim.traces.reading import Reading

BLOCK_TOKENS = 16


def rows(source: Source, reading: Reading) -> Rows:
    frame = source.table(source.names)
    own, parents = (
        frame[next(n for n in frame.columns if n.lower() == name)] for name in ("chat_id", "parent_chat_id")
    )
    return Rows(frame.drop(own.name, parents.name).with_columns(session_id=first_chats(own, parents)))


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
    name="bailian",
    title="Qwen-Bailian JSONL",
    origin="a file in the layout of the Qwen-Bailian traces, ATC'25 "
    "(github.com/alibaba-edu/qwen-bailian-usagetraces-anon)",
    signature=("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length"),
    kinds=("jsonl", "json", "csv", "parquet"),
    fields={
        "arrival_s": ("timestamp",),
        "prompt_tokens": ("input_length",),
        "output_tokens": ("output_length",),
        "prefix_hashes": ("hash_ids",),
        "client_id": ("type",),
        "session_id": ("session_id",),
    },
    hash_block_size=BLOCK_TOKENS,
    licence="Apache-2.0 where it is Alibaba's own",
    tokenizer="Qwen",
    rows=rows,
)

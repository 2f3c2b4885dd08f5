"""ShareGPT conversations: a JSON list of `{"id", "conversations": [{"from", "value"}, ...]}`. A corpus: no
arrivals.

As in vLLM's own benchmark a request is a conversation's first exchange: the first human turn is the prompt,
the model's turn after it the response. Conversations without one are dropped and counted. Token counts are
taken from `prompt_tokens` and `output_tokens` where every item has them, else estimated from the text's size.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from parsim.traces.checks import Draft
from parsim.traces.readers.format import Format
from parsim.traces.readers.source import Source

BYTES_PER_TOKEN = 4.0
"""UTF-8 bytes per cl100k_base token of English text: 3.6 (MMLU-Pro), 3.9 (Arena-Hard), 4.1 (GSM8K), 4.7
(AlpacaEval) as counted over those prompts."""

HUMAN, MODEL = ("human", "user"), ("gpt", "assistant", "chatgpt", "bing", "bard")


def read(source: Source) -> Draft:
    items = source.json
    exchanges = [
        (row, item, pair) for row, item in enumerate(items) if (pair := _first_exchange(item)) is not None
    ]
    counted = bool(exchanges) and all(
        "prompt_tokens" in item and "output_tokens" in item for _, item, _ in exchanges
    )
    texts = pl.DataFrame(
        {
            "row": [row for row, _, _ in exchanges],
            "request_id": [str(item.get("id", row)) for row, item, _ in exchanges],
            "prompt": [pair[0] for _, _, pair in exchanges],
            "response": [pair[1] for _, _, pair in exchanges],
        },
        schema={"row": pl.UInt32, "request_id": pl.String, "prompt": pl.String, "response": pl.String},
    )
    if counted:
        tokens = {
            name: pl.Series([item[name] for _, item, _ in exchanges])
            for name in ("prompt_tokens", "output_tokens")
        }
        frame = texts.with_columns(**tokens)
    else:
        frame = texts.with_columns(prompt_tokens=_estimate("prompt"), output_tokens=_estimate("response"))
    lost = len(items) - len(exchanges)
    notes = [f"dropped {lost:,} of {len(items):,} conversations without a first exchange"] if lost else []
    metadata = {
        "source": "ShareGPT conversations, first exchange of each",
        "licence": "not stated",
        "tokenizer": "counts given in the file"
        if counted
        else f"estimated: UTF-8 bytes / {BYTES_PER_TOKEN:g}",
    }
    return Draft(frame.drop("response"), metadata=metadata, notes=notes)


def _first_exchange(item: Any) -> tuple[str, str] | None:
    """(prompt, response) texts; None unless the first human turn is answered by a non-empty turn of the
    model."""
    turns = item.get("conversations") if isinstance(item, dict) else None
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        return None
    first = next((at for at, turn in enumerate(turns) if turn.get("from") in HUMAN), None)
    if first is None or first + 1 >= len(turns) or turns[first + 1].get("from") not in MODEL:
        return None
    prompt, response = turns[first].get("value"), turns[first + 1].get("value")
    whole = isinstance(prompt, str) and isinstance(response, str) and prompt.strip() and response.strip()
    return (prompt, response) if whole else None


def _estimate(column: str) -> pl.Expr:
    return (pl.col(column).str.len_bytes() / BYTES_PER_TOKEN).ceil().cast(pl.Int64)


FORMAT = Format("sharegpt", "ShareGPT JSON", ("json",), ("conversations",), read, has_arrivals=False)

"""Conversations as rows: of each the first exchange, its prompt and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parsim.errors import UserError
from parsim.traces.readers.format import Rows
from parsim.traces.readers.rows import rows_of
from parsim.traces.readers.source import Source

HUMAN, MODEL = ("human", "user"), ("gpt", "assistant", "chatgpt", "bing", "bard")


def first_exchanges(source: Source, turns: str, carried: Mapping[str, str]) -> Rows:
    """A row a conversation: its first human turn and the model's answer to it, as vLLM's own benchmark takes them.
    Conversations without one are dropped and counted.

    Args:
        turns: the key of the list of turns, each with `from` or `role`, and `value` or `content`.
        carried: name in the file -> name of the row's column.
    """
    items, records = _items(source), []
    for at, item in enumerate(items):
        pair = first_exchange(item.get(turns))
        if pair is not None:
            kept = {column: item[name] for name, column in carried.items() if item.get(name) is not None}
            records.append({"at": at, "prompt": pair[0], "response": pair[1], **kept})
    lost = len(items) - len(records)
    notes = [f"dropped {lost:,} of {len(items):,} conversations without a first exchange"] if lost else []
    if not records:
        raise UserError(
            f"{source.path}: none of its {len(items):,} conversations has a prompt and an answer to it"
        )
    counted = [
        name for name in ("prompt_tokens", "output_tokens") if all(name in record for record in records)
    ]
    if len(counted) < 2:
        records = [{k: v for k, v in record.items() if not k.endswith("_tokens")} for record in records]
    rows = rows_of(records, notes)
    row = rows.frame["at"].cast(rows.frame["row"].dtype)
    told = {"tokenizer": "counts given in the file"} if len(counted) == 2 else {}
    return Rows(rows.frame.drop("at").with_columns(row=row), notes, told)


def _items(source: Source) -> list[dict[str, Any]]:
    if source.kind == "parquet":
        return source.table(source.names).drop("row").to_dicts()
    return source.objects


def first_exchange(turns: Any) -> tuple[str, str] | None:
    """(prompt, response) texts; None unless the first human turn is answered by a non-empty turn of the model."""
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        return None
    who = [str(turn.get("from", turn.get("role"))).lower() for turn in turns]
    first = next((at for at, name in enumerate(who) if name in HUMAN), None)
    if first is None or first + 1 >= len(turns) or who[first + 1] not in MODEL:
        return None
    prompt, response = (turns[at].get("value", turns[at].get("content")) for at in (first, first + 1))
    whole = isinstance(prompt, str) and isinstance(response, str) and prompt.strip() and response.strip()
    return (prompt, response) if whole else None

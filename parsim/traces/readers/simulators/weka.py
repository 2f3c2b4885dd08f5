"""Agentic traces of WEKA's kv-cache-tester: one JSON object a conversation, its API calls in `requests`.

A call has `t` (seconds since its conversation began), `in`, `out`, `hash_ids` of `block_size` tokens, perhaps
`api_time` (seconds that it took); a `subagent` entry has calls of its own. A conversation says nothing about when
it began: a file of one is a trace, one of several is a corpus of sessions. `hash_id_scope` local: ids of two
conversations are never the same text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parsim.errors import UserError
from parsim.traces.readers.format import JSON, Format, Rows
from parsim.traces.readers.rows import rows_of
from parsim.traces.readers.source import Source
from parsim.traces.reading import Reading


def rows(source: Source, reading: Reading) -> Rows:
    conversations = source.objects
    sizes = {item.get("block_size") for item in conversations}
    if len(sizes) > 1:
        raise UserError(
            f"{source.path}: conversations with blocks of {len(sizes)} sizes; split the file by block_size"
        )
    records, notes = [], []
    for at, item in enumerate(conversations):
        name = str(item.get("id", at))
        local = item.get("hash_id_scope", "local") == "local" and len(conversations) > 1
        for turn, call in enumerate(_calls(item)):
            ids = [f"{name}/{one}" if local else one for one in call.get("hash_ids") or []]
            end = call["t"] + call["api_time"] if _are_numbers(call.get("t"), call.get("api_time")) else None
            records.append(
                {
                    "t": call.get("t"),
                    "in": call.get("in"),
                    "out": call.get("out"),
                    "hash_ids": ids,
                    "session_id": name,
                    "turn": turn,
                    "end_s": end,
                }
            )
    if len(conversations) > 1:
        notes.append(
            f"{len(conversations):,} conversations that do not say when they began are taken to begin together: "
            "give them arrivals with `parsim traces join`"
        )
    size = next(iter(sizes))
    return rows_of(records, notes, **({"hash_block_size": str(size)} if size is not None else {}))


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _calls(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The API calls of a conversation and of its subagents, by time."""
    found: list[dict[str, Any]] = []
    for call in item.get("requests") or []:
        if isinstance(call, dict):
            found += list(_calls(call)) if isinstance(call.get("requests"), list) else [call]
    return iter(sorted(found, key=lambda call: call["t"] if _are_numbers(call.get("t")) else 0.0))


FORMAT = Format(
    name="weka",
    title="agentic traces of WEKA's kv-cache-tester",
    origin="a file in the layout of WEKA's agentic coding traces (github.com/callanjfox/kv-cache-tester)",
    signature=("block_size", "hash_id_scope", "requests"),
    kinds=JSON,
    fields={
        "arrival_s": ("t",),
        "prompt_tokens": ("in",),
        "output_tokens": ("out",),
        "prefix_hashes": ("hash_ids",),
        "end": ("end_s",),
    },
    time_unit="s",
    rows=rows,
)

"""genai-perf's `profile_export.json`: experiments, each with requests that have a time stamp in nanoseconds, the
payload and the chunks of the response. Tokens are estimated from the text, which holds no counts.

Layout as in Triton's docs (docs.nvidia.com, perf_analyzer/genai-perf/docs/files.html). A file of several
experiments needs `run`.
"""

from __future__ import annotations

import json
from typing import Any

from parsim.errors import UserError
from parsim.traces.readers.format import JSON, Format, Rows
from parsim.traces.readers.rows import rows_of
from parsim.traces.readers.source import Source
from parsim.traces.reading import Reading


def rows(source: Source, reading: Reading) -> Rows:
    experiments = source.objects[0].get("experiments") or []
    if reading.run is None and len(experiments) > 1:
        raise UserError(
            f"{source.path}: holds {len(experiments)} experiments; choose one with `--run 1` to "
            f"`--run {len(experiments)}`"
        )
    if (reading.run or 1) > len(experiments):
        raise UserError(
            f"{source.path}: holds {len(experiments)} experiments, asked for number {reading.run or 1}"
        )
    chosen = experiments[(reading.run or 1) - 1]
    records = []
    for one in chosen.get("requests") or []:
        ends = one.get("response_timestamps") or []
        records.append(
            {
                "timestamp": one.get("timestamp"),
                "prompt": _prompt(one.get("request_inputs") or {}),
                "response": "".join(_text(chunk) for chunk in one.get("response_outputs") or []),
                "end_ns": ends[-1] if ends else None,
            }
        )
    if not records:
        raise UserError(f"{source.path}: the experiment holds no requests; run genai-perf again")
    experiment, notes = chosen.get("experiment") or {}, []
    metadata: dict[str, str] = {}
    if experiment.get("mode") == "concurrency":
        metadata["max_concurrency"] = str(experiment.get("value"))
        notes.append(
            f"sent at concurrency {experiment.get('value')}: the client held the queue back, so arrivals waited for "
            "earlier requests"
        )
    return rows_of(records, notes, **metadata)


def _prompt(inputs: dict[str, Any]) -> str | None:
    """The text of a request, of its payload where that is JSON in a string."""
    for name in ("text_input", "prompt", "payload"):
        value = inputs.get(name)
        if isinstance(value, str):
            return _of_messages(value) if name == "payload" else value
    return _of_messages(json.dumps(inputs)) if "messages" in inputs else None


def _of_messages(payload: str) -> str:
    try:
        body = json.loads(payload)
    except ValueError:
        return payload
    if not isinstance(body, dict):
        return payload
    if isinstance(body.get("prompt"), str):
        return str(body["prompt"])
    return "\n".join(
        str(one.get("content", "")) for one in body.get("messages") or [] if isinstance(one, dict)
    )


def _text(chunk: Any) -> str:
    """The text of one chunk: Triton's `text_output`, or an event of an OpenAI stream."""
    if not isinstance(chunk, dict):
        return ""
    if isinstance(chunk.get("text_output"), str):
        return str(chunk["text_output"])
    found = ""
    for line in str(chunk.get("response", "")).splitlines():
        line = line.removeprefix("data:").strip()
        try:
            body = json.loads(line)
        except ValueError:
            continue
        for choice in body.get("choices") or [] if isinstance(body, dict) else []:
            part = choice.get("delta") or choice.get("message") or choice
            found += str(part.get("content") or part.get("text") or "")
    return found


FORMAT = Format(
    name="genai-perf",
    title="genai-perf profile_export.json",
    origin="a genai-perf profile export (docs.nvidia.com, perf_analyzer/genai-perf)",
    signature=("experiments",),
    kinds=JSON,
    fields={
        "arrival_s": ("timestamp",),
        "prompt": ("prompt",),
        "response": ("response",),
        "end": ("end_ns",),
    },
    time_unit="ns",
    licence="yours",
    rows=rows,
)

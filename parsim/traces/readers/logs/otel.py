"""OpenTelemetry spans of GenAI calls, as OTLP JSON (`resourceSpans`, one object or one a line) writes them.

A span with `gen_ai.usage.input_tokens` and `gen_ai.usage.output_tokens` (older: prompt and completion tokens) is
a request; it arrives at `startTimeUnixNano`. Names are those of the semantic conventions
(opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans). Other spans are left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parsim.errors import UserError
from parsim.traces.readers.format import JSON, Format, Rows
from parsim.traces.readers.rows import rows_of
from parsim.traces.readers.source import Source
from parsim.traces.reading import Reading

INPUT = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.token_count.prompt",
    "llm.usage.prompt_tokens",
)
OUTPUT = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
    "llm.usage.completion_tokens",
)


def rows(source: Source, reading: Reading) -> Rows:
    records, others = [], 0
    for span, attributes in _spans(source.objects):
        tokens = [
            next((attributes[name] for name in names if name in attributes), None)
            for names in (INPUT, OUTPUT)
        ]
        if tokens[0] is None and tokens[1] is None:
            others += 1
            continue
        status = span.get("status")
        code = status.get("code") if isinstance(status, dict) else status
        records.append(
            {
                "startTimeUnixNano": span.get("startTimeUnixNano", span.get("start_time_unix_nano")),
                "endTimeUnixNano": span.get("endTimeUnixNano", span.get("end_time_unix_nano")),
                "span_id": span.get("spanId", span.get("span_id")),
                "input_tokens": tokens[0],
                "output_tokens": tokens[1],
                "session": attributes.get("gen_ai.conversation.id", attributes.get("session.id")),
                "client": attributes.get("user.id", attributes.get("enduser.id")),
                "model": attributes.get("gen_ai.request.model", attributes.get("gen_ai.response.model")),
                "error": "error" if code in (2, "2", "STATUS_CODE_ERROR", "ERROR") else "",
            }
        )
    if not records:
        raise UserError(f"{source.path}: none of its {others:,} spans has {INPUT[0]}: no GenAI calls")
    kept = [{name: value for name, value in one.items() if value is not None} for one in records]
    return rows_of(kept, [f"{others:,} spans without token counts left out"] if others else [])


def _spans(objects: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Spans with their attributes."""
    for item in objects:
        for resource in item.get("resourceSpans") or item.get("resource_spans") or []:
            for scope in resource.get("scopeSpans") or resource.get("scope_spans") or []:
                for span in scope.get("spans") or []:
                    yield span, _attributes(span.get("attributes") or [])


def _attributes(pairs: Any) -> dict[str, Any]:
    if isinstance(pairs, dict):
        return pairs
    found = {}
    for pair in pairs:
        value = pair.get("value")
        found[str(pair.get("key"))] = next(iter(value.values()), None) if isinstance(value, dict) else value
    return found


FORMAT = Format(
    name="otel",
    title="OpenTelemetry GenAI spans, OTLP JSON",
    origin="OpenTelemetry spans (opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans)",
    signature=("resourceSpans",),
    kinds=JSON,
    fields={
        "arrival_s": ("startTimeUnixNano",),
        "prompt_tokens": ("input_tokens",),
        "output_tokens": ("output_tokens",),
        "request_id": ("span_id",),
        "session_id": ("session",),
        "client_id": ("client",),
        "end": ("endTimeUnixNano",),
        "failure": ("error",),
    },
    time_unit="ns",
    licence="yours",
    tokenizer="the served models'",
    rows=rows,
)

"""AIPerf's `profile_export.jsonl`: a record a request, `metadata` (nanoseconds since 1970) and `metrics` with
units.

`output_sequence_length` is the response with its reasoning. Turns of a conversation share `conversation_id`; the
gap between them is recorded. Layout as in its docs (github.com/ai-dynamo/aiperf,
docs/tutorials/working-with-profile-exports.md). Warm-up requests are kept: they loaded the engine too.
"""

from __future__ import annotations

from parsim.traces.readers.format import JSON, Format

FORMAT = Format(
    name="aiperf",
    title="AIPerf profile_export.jsonl",
    origin="an AIPerf profile export (github.com/ai-dynamo/aiperf)",
    signature=("metadata.request_start_ns", "metrics.output_sequence_length.value"),
    kinds=JSON,
    fields={
        "arrival_s": ("metadata.request_start_ns",),
        "prompt_tokens": ("metrics.input_sequence_length.value",),
        "output_tokens": ("metrics.output_sequence_length.value",),
        "request_id": ("metadata.x_request_id",),
        "session_id": ("metadata.conversation_id",),
        "turn": ("metadata.turn_index",),
        "end": ("metadata.request_end_ns",),
        "failure": ("metadata.was_cancelled",),
    },
    licence="yours",
)

"""LiteLLM's spend logs and StandardLoggingPayload: `startTime`, `endTime`, `prompt_tokens`, `completion_tokens`,
`status`.

Layout as in docs.litellm.ai/docs/proxy/logging_spec. A `status` of failure is a failed request; the key's alias
or the end user is the client; `prefix_block_hashes` give the shared prefixes where that callback is on.
"""

from __future__ import annotations

from parsim.traces.readers.format import Format

FORMAT = Format(
    name="litellm",
    title="LiteLLM spend logs",
    origin="a LiteLLM log (docs.litellm.ai/docs/proxy/logging_spec)",
    signature=("startTime", "endTime", "prompt_tokens", "completion_tokens"),
    fields={
        "arrival_s": ("startTime",),
        "prompt_tokens": ("prompt_tokens",),
        "output_tokens": ("completion_tokens",),
        "request_id": ("request_id", "id"),
        "client_id": ("end_user", "metadata.user_api_key_alias", "user", "api_key"),
        "session_id": ("session_id", "trace_id"),
        "end": ("endTime",),
        "failure": ("status",),
    },
    licence="yours",
    tokenizer="the served models'",
)

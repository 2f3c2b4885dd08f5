"""Logs of OpenAI-style responses: `created` (seconds since 1970) and `usage` with `prompt_tokens` and
`completion_tokens`, at the top or inside `response` or `body`. The API is described at
platform.openai.com/docs/api-reference/chat/object.

`created` is when the answer was begun: a few milliseconds to seconds after the request arrived.
"""

from __future__ import annotations

from parsim.traces.readers.format import Format

FORMAT = Format(
    name="openai",
    title="OpenAI-style response logs",
    origin="a log of OpenAI-style responses (platform.openai.com/docs/api-reference/chat/object)",
    signature=("created", "usage.prompt_tokens", "usage.completion_tokens"),
    fields={
        "arrival_s": ("created",),
        "prompt_tokens": ("usage.prompt_tokens",),
        "output_tokens": ("usage.completion_tokens",),
        "request_id": ("id",),
    },
    licence="yours",
    tokenizer="the served model's",
)

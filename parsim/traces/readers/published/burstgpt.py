"""BurstGPT traces: one CSV row a request.

`Timestamp` (seconds), `Model`, `Request tokens`, `Response tokens`, `Total tokens`, `Log Type`; the third
trace adds `Session ID` (conversation mode only) and `Elapsed time`. A row with zero response tokens is a
failed request. `client_id` is the log type, API or conversation.
"""

from __future__ import annotations

from parsim.traces.readers.format import Format

FORMAT = Format(
    name="burstgpt",
    title="BurstGPT",
    origin="BurstGPT's traces (github.com/HPMLL/BurstGPT) or a file in their columns",
    signature=("Timestamp", "Request tokens", "Response tokens"),
    fields={
        "arrival_s": ("Timestamp",),
        "prompt_tokens": ("Request tokens",),
        "output_tokens": ("Response tokens",),
        "session_id": ("Session ID",),
        "client_id": ("Log Type",),
    },
    licence="CC-BY-4.0 where it is BurstGPT's own",
    tokenizer="not stated (GPT-3.5 and GPT-4)",
)

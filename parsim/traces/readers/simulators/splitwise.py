"""splitwise-sim and SageServe traces: a CSV row a request; `prompt_size` and `token_size` are tokens,
`arrival_timestamp` seconds.
"""

from __future__ import annotations

from parsim.traces.readers.format import Format

FORMAT = Format(
    name="splitwise",
    title="splitwise-sim CSV",
    origin="a file in the columns of splitwise-sim (github.com/Mutinifni/splitwise-sim)",
    signature=("arrival_timestamp", "prompt_size", "token_size"),
    fields={
        "arrival_s": ("arrival_timestamp",),
        "prompt_tokens": ("prompt_size",),
        "output_tokens": ("token_size",),
        "client_id": ("client_tenant", "application_id"),
    },
    licence="MIT where it is splitwise-sim's own",
)

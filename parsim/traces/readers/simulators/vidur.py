"""vidur's CSV files: `num_prefill_tokens,num_decode_tokens`, and `arrived_at` (seconds) in its processed traces.

Most of vidur's files hold lengths only: those are a corpus, and need arrivals from elsewhere (`join`).
"""

from __future__ import annotations

from parsim.traces.readers.format import Format

FORMAT = Format(
    name="vidur",
    title="vidur CSV",
    origin="a file in vidur's columns (github.com/microsoft/vidur)",
    signature=("num_prefill_tokens", "num_decode_tokens"),
    fields={
        "arrival_s": ("arrived_at",),
        "prompt_tokens": ("num_prefill_tokens",),
        "output_tokens": ("num_decode_tokens",),
    },
    licence="MIT where it is vidur's own",
)

"""llmperf's `*_individual_responses.json`: a list of requests with tokens and latencies and no times: lengths, a
corpus.

Layout of github.com/ray-project/llmperf, llmperf/common_metrics.py.
"""

from __future__ import annotations

from parsim.traces.readers.format import JSON, Format

FORMAT = Format(
    name="llmperf",
    title="llmperf individual_responses.json",
    origin="an llmperf result (github.com/ray-project/llmperf)",
    signature=("number_input_tokens", "number_output_tokens"),
    kinds=JSON,
    fields={
        "prompt_tokens": ("number_input_tokens",),
        "output_tokens": ("number_output_tokens",),
        "failure": ("error_code",),
    },
    licence="yours",
    lengths_only=True,
)

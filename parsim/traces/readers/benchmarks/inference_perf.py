"""inference-perf's `per_request_lifecycle_metrics.json`: a list of requests, `start_time` and `end_time` in
seconds on the client's clock, tokens in `info` (newer: in `info.response_metrics`), `error` where one failed.

Layout of github.com/kubernetes-sigs/inference-perf, inference_perf/reportgen.
"""

from __future__ import annotations

from parsim.traces.readers.format import JSON, Format

FORMAT = Format(
    name="inference-perf",
    title="inference-perf per_request_lifecycle_metrics.json",
    origin="an inference-perf report (github.com/kubernetes-sigs/inference-perf)",
    signature=("start_time", "end_time", "info.input_tokens"),
    kinds=JSON,
    fields={
        "arrival_s": ("start_time",),
        "prompt_tokens": ("info.input_tokens", "info.request_metrics.input_tokens"),
        "output_tokens": ("info.output_tokens", "info.response_metrics.output_tokens"),
        "end": ("end_time",),
    },
    time_unit="s",
    licence="yours",
)

"""LLMServingSim: its workloads and its recordings of real vLLM runs, one JSON object a line.

A workload has `input_toks`, `output_toks`, `arrival_time_ns`; a recording `request_id` and `arrival_time` (seconds
since 1970), and what the engine did with the request, which is no part of a trace.
"""

from __future__ import annotations

from parsim.traces.readers.format import Format

FORMAT = Format(
    name="servingsim",
    title="LLMServingSim workload or recording",
    origin="a file in LLMServingSim's layout (github.com/casys-kaist/LLMServingSim)",
    signature=("input_toks", "output_toks"),
    fields={
        "request_id": ("request_id",),
        "arrival_s": ("arrival_time_ns", "arrival_time"),
        "prompt_tokens": ("input_toks",),
        "output_tokens": ("output_toks",),
    },
    licence="MIT where it is LLMServingSim's own",
    tokenizer="the served model's",
)

"""BLIS (inference-sim) trace v2: a CSV beside a YAML header, `arrival_time_us` in microseconds.

`round_index` is the turn within `session_id`; `last_chunk_time_us` is the end of a turn; a `status` other than
`ok` is a failed request. `output_tokens` holds what was generated.
"""

from __future__ import annotations

from parsim.traces.readers.format import Format

FORMAT = Format(
    name="blis",
    title="BLIS trace v2 CSV",
    origin="a file in the layout of BLIS's trace v2 (github.com/inference-sim/inference-sim, sim/workload/tracev2.go)",
    signature=("arrival_time_us", "input_tokens", "output_tokens", "round_index"),
    fields={
        "arrival_s": ("arrival_time_us",),
        "prompt_tokens": ("input_tokens",),
        "output_tokens": ("output_tokens",),
        "client_id": ("client_id", "tenant_id"),
        "turn": ("round_index",),
        "failure": ("status",),
    },
    licence="Apache-2.0 where it is BLIS's own",
)
